"""A small process beside the one that was started by hand: it makes the report when that one cannot.

It is a fork from before torch is imported, holds nothing but the end of a pipe, and is nobody's child, so that a
program which waits for all of its own children does not wait for it. When the pipe closes and the last record is
missing (a crash, a kill, another program in the same process), it waits for the process to be gone and reports.
"""

from __future__ import annotations

import os
import signal
import time

from torchsan.processes.journal import Journal
from torchsan.processes.options import RunOptions
from torchsan.processes.reading import read, read_folder

LOOK = 0.1
# The ranks of a launcher that was killed are on their own; so long they may take to notice.
PATIENCE = 5.0


def start_monitor(options: RunOptions, journal: Journal) -> None:
    """Start it; where there is no fork, a crash loses the report but not the records."""
    if not hasattr(os, "fork"):
        return
    reading, writing = os.pipe()  # closed by the system when this process ends or becomes another program
    first = os.fork()
    if first:
        os.close(reading)
        os.waitpid(first, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.close(writing)
            _monitor(options, journal, reading)
    finally:
        os._exit(0)


def _monitor(options: RunOptions, journal: Journal, pipe: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.read(pipe, 1)
    root = read(journal.path)
    if root.ended:
        return
    while root.running:  # it has become another program
        time.sleep(LOOK)
    _settle(options, journal.pid)
    if not any(record.pid == journal.pid and record.ended for record in read_folder(options.folder)):
        journal.end("died without a word")
    from torchsan.processes.reporting import report_if_last

    report_if_last(options)


def _settle(options: RunOptions, root: int) -> None:
    """Give the processes that are left a moment to end by themselves."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if not any(record.running for record in read_folder(options.folder) if record.pid != root):
            return
        time.sleep(LOOK)

"""Who makes the report, and when: the process that was started by hand, or the last of several that were."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator

from torchsan.commands.output import CLEAN, FOUND, emit
from torchsan.model import Report
from torchsan.processes.merging import merge
from torchsan.processes.options import RunOptions
from torchsan.processes.reading import read_folder
from torchsan.processes.session import Session

TOLD = "told"


def finish(session: Session, outcome: str) -> int:
    """End a process that was started by hand; report if it is the last. FOUND when the report has alarms."""
    session.end(outcome)
    return report_if_last(session.options, session.report, os.getpid())


def report_if_last(options: RunOptions, own: Report | None = None, own_pid: int | None = None) -> int:
    with _alone(options.folder):
        if os.path.exists(os.path.join(options.folder, TOLD)):
            return CLEAN
        records = read_folder(options.folder)
        others = [record for record in records if record.pid != own_pid]
        if options.expected > 1 and any(record.running and record.role == "rank" for record in others):
            return FOUND if own is not None and own.alarms else CLEAN
        report = own
        if own is None or any(record.watched or record.findings for record in others):
            report = merge(records, own, own_pid)
        else:
            own.notes.extend(note for note in merge(records).notes if note not in own.notes)
        assert report is not None
        report.command = report.command or list(options.command)
        with contextlib.suppress(OSError), open(os.path.join(options.folder, TOLD), "x"):
            pass
    tell(report, options)
    if not options.kept:
        shutil.rmtree(options.folder, ignore_errors=True)
    return FOUND if report.alarms else CLEAN


def tell(report: Report, options: RunOptions) -> None:
    args = argparse.Namespace(**options.output)
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
    wanted = args.format != "full" or args.output or args.html or report.memory is not None
    if wanted or report.visible(possible=args.possible) or report.notes:
        emit(report, args, stream=sys.stderr)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    try:
        file = os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        _lock(file)
        yield
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Wait for the file to be ours; closing it lets go."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]

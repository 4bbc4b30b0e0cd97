"""The records of one process: appended at once, so that they outlive whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from typing import Any

from torchsan.model import Finding, Report

SUFFIX = ".jsonl"
STACKS = ".stacks"  # where a process stood when it was told to end
STOP = "stop"


def environment_rank() -> int | None:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


class Journal:
    """An append-only file of JSON lines. A full disk or a folder that is gone is no reason to hurt the program."""

    def __init__(self, folder: str, role: str) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.rank = environment_rank()
        self.ended = False
        name = f"{socket.gethostname()}-{self.pid}-{time.time_ns()}{SUFFIX}"
        self.path = os.path.join(folder, name)
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.write(
            "process",
            pid=self.pid,
            parent=os.getppid(),
            host=socket.gethostname(),
            rank=self.rank,
            role=role,
            started=_start_of(self.pid),
            command=list(getattr(sys, "orig_argv", sys.argv)),
        )

    def write(self, kind: str, **data: Any) -> None:
        if self._file < 0:
            return
        line = json.dumps({"kind": kind, **data}, separators=(",", ":")) + "\n"
        with contextlib.suppress(OSError):
            os.write(self._file, line.encode(errors="backslashreplace"))

    def watching(self, torch: str) -> None:
        self.write("watching", torch=torch)

    def is_rank(self, rank: int, world: int) -> None:
        if rank != self.rank or world:
            self.rank = rank
            self.write("rank", rank=rank, world=world)

    def finding(self, finding: Finding) -> None:
        self.write("finding", finding=finding.as_json())

    def end(self, outcome: str, report: Report | None = None) -> None:
        """The last word of a process that ends in an orderly way."""
        if self.ended:
            return
        self.ended = True
        if report is not None and report.timeline is not None:
            self.write("timeline", timeline=report.timeline.as_json())
        findings = [finding.as_json() for finding in report.findings] if report is not None else []
        notes = list(report.notes) if report is not None else []
        aside = report.extra.get("stepped_aside") if report is not None else None
        self.write("end", outcome=outcome, findings=findings, notes=notes, stepped_aside=aside)

    # -- stopping all of them -----------------------------------------------------------------------

    def ask_all_to_stop(self) -> None:
        with contextlib.suppress(OSError), open(os.path.join(self.folder, STOP), "a"):
            pass

    def asked_to_stop(self) -> bool:
        return os.path.exists(os.path.join(self.folder, STOP))


def _start_of(pid: int) -> str:
    """When a process began, as the system tells it: a number of a process may be given to another one later."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_running(pid: int, started: str) -> bool:
    """Is this very process still there, and not merely waiting to be buried?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return True
    return fields[0] not in "ZX" and (not started or fields[19] == started)

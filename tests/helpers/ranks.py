"""Real ranks for tests, cheaply: forks of a process that has imported torch already, talking through gloo."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # DDP loads it: once here instead of once in every rank
from resting import Rest

from torchsan.model import Report
from torchsan.processes import child
from torchsan.processes.follow import follow_children
from torchsan.processes.journal import Journal
from torchsan.processes.merging import merge
from torchsan.processes.options import RunOptions
from torchsan.processes.reading import read_folder
from torchsan.processes.session import Session

# Seconds in which no rank does anything, see `resting`.
PATIENCE = 60.0
AFTER_TOLD = 5.0
AFTER_FAILURE = 3.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Ranks:
    """What the ranks did: exit status and output of each, and their one report."""

    statuses: list[int]
    outputs: list[str]
    report: Report

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.report.findings]

    def lines(self, code: str) -> set[int]:
        return {finding.primary.line for finding in self.report.findings if finding.code == code}


def _be_rank(rank: int, world: int, port: int, program: Path, folder: Path, watched: bool) -> None:
    if world > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    output = os.open(folder / f"{rank}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Pytest's capture has taken the place of both.
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    torch.set_num_threads(1)
    code = compile(program.read_text(), str(program), "exec")
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = str(program)
    if not watched:
        exec(code, main.__dict__)
        return
    options = RunOptions(str(folder), root=0, expected=world, user_roots=[str(program.parent)])
    session = Session(options, Journal(str(folder), "rank" if world > 1 else "main"), Report(), code=code)
    child.adopt(session)
    follow_children(options)
    session.begin()
    outcome = "ended"
    try:
        exec(code, main.__dict__)
    except BaseException as error:
        outcome = f"failed with {type(error).__name__}"
        session.explain(error)
        raise
    finally:
        session.end(outcome)


def run_ranks(
    program: Path, world: int = 2, *, watched: bool = True, patience: float = PATIENCE, folder: Path | None = None
) -> Ranks:
    """Run a program on so many ranks to its end; ranks that all rest for so long are told to end, then killed."""
    port = free_port()
    folder = folder or program.parent / f"{program.stem}-{'watched' if watched else 'plain'}-{port}"
    folder.mkdir(exist_ok=True)
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _be_rank(rank, world, port, program, folder, watched)
                status = 0
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else 0
            except BaseException:
                traceback.print_exc()
            finally:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                os._exit(status)
        children.append(pid)
    statuses = _wait(children, patience)
    outputs = [(folder / f"{rank}.out").read_text() for rank in range(world)]
    return Ranks(statuses, outputs, merge(read_folder(str(folder))))


def _wait(children: list[int], patience: float) -> list[int]:
    """The statuses of all; as a launcher does, the others are told to end when one fails or nothing moves any more."""
    statuses: dict[int, int] = {}
    rest, told = Rest(), False
    while len(statuses) < len(children):
        for pid in children:
            if pid not in statuses:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    statuses[pid] = os.waitstatus_to_exitcode(status)
                    rest = Rest()
        waiting = [pid for pid in children if pid not in statuses]
        rested = rest.look(waiting)
        if told and rested > AFTER_TOLD:
            _signal(waiting, signal.SIGKILL)
        elif not told and rested > (AFTER_FAILURE if any(statuses.values()) else patience):
            rest, told = Rest(), True
            _signal(waiting, signal.SIGTERM)
        time.sleep(0.02)
    return [statuses[pid] for pid in children]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)

"""Real ranks for tests, cheaply: forks of a process that has imported torch already, talking through gloo."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP loads it: once here instead of once in every rank

PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Rank:
    """What one rank did."""

    status: int
    output: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def codes(self) -> list[str]:
        return [finding["code"] for finding in self.findings]


def _be_rank(rank: int, world: int, port: int, program: Path, result: Path, watched: bool) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    output = os.open(result.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Pytest's capture has taken the place of both.
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    torch.set_num_threads(1)
    code = compile(program.read_text(), str(program), "exec")
    scope = {"__name__": "__main__", "__file__": str(program)}
    if not watched:
        exec(code, scope)
        return
    import torchsan

    block = torchsan.watch()
    try:
        with block:
            exec(code, scope)
    finally:
        found = [finding.as_json() for finding in block.report.findings]
        result.write_text(json.dumps({"findings": found, "notes": block.report.notes}))


def run_ranks(program: Path, world: int = 2, *, watched: bool = True, patience: float = PATIENCE) -> list[Rank]:
    """Run a program on so many ranks to its end; a rank that takes too long is killed."""
    port = free_port()
    results = [program.with_name(f"{program.stem}-{rank}-{watched}.json") for rank in range(world)]
    children = []
    for rank, result in enumerate(results):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _be_rank(rank, world, port, program, result, watched)
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
    statuses = [_wait(pid, time.monotonic() + patience) for pid in children]
    return [_read(status, result) for status, result in zip(statuses, results, strict=True)]


def _wait(pid: int, until: float) -> int:
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _read(status: int, result: Path) -> Rank:
    data = json.loads(result.read_text()) if result.exists() else {}
    output = result.with_suffix(".out").read_text()
    return Rank(status, output, data.get("findings", []), data.get("notes", []))

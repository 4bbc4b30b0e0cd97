"""Where candidates are run: a process each, with the edited sources laid over the files."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Protocol

from torchsan.errors import UsageError
from torchsan.fix.capture_child import CaptureRequest
from torchsan.fix.child import Request
from torchsan.fix.source import Source
from torchsan.fix.trial import Mode, Trial
from torchsan.fix.warm import Order, Warm

# Sets of strings are ordered by hash: the same in every trial.
SAME = {"PYTHONHASHSEED": "0"}


class Lab(Protocol):
    """Runs the program with some files replaced."""

    runs: int

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Subprocess:
    """Runs a script or module as a command line would: first in a fresh interpreter, then in forks of a warm one."""

    script: str | None
    module: str | None
    arguments: list[str]
    limit: int | None = None
    timeout: float = 600.0
    sandbox: bool = False
    fork: bool = True
    runs: int = 0
    # How many of the runs were forks.
    forks: int = 0
    _warm: Warm | None = None
    _modules: tuple[str, ...] = ()

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        if not self.runs and self.fork and hasattr(os, "fork"):
            # Imports torch while the first run is at work.
            self._warm = Warm(environment())
        self.runs += 1
        files = {path: source.raw for path, source in changed.items()}
        script = os.path.abspath(self.script) if self.sandbox and self.script else self.script
        request = Request(mode, self.limit, script, self.module, self.arguments, files)
        scratch = tempfile.mkdtemp(prefix="torchsan-fix-")
        try:
            return self._run(request, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _run(self, request: Request, scratch: str) -> Trial:
        folder = os.getcwd()
        if self.sandbox:
            folder = os.path.join(scratch, "work")
            os.mkdir(folder)
        trial = self._forked(request, scratch, folder) if self.runs > 1 else None
        if trial is None:
            trial = _in_a_process("torchsan.fix.child", request, scratch, folder, self.timeout)
        if self.runs == 1:
            self._modules = tuple(trial.modules)
            if not trial.forkable:
                self.close()
        return trial

    def _forked(self, request: Request, scratch: str, folder: str) -> Trial | None:
        if self._warm is None:
            return None
        answer, output = os.path.join(scratch, "answer"), os.path.join(scratch, "output")
        done = self._warm.run(Order(request, answer, output, folder, self.timeout, self._modules))
        if done is None:
            self.close()
            return None
        self.forks += 1
        with open(output, "rb") as file:
            text = file.read().decode(errors="replace")
        return _late(self.timeout, text) if done.timed_out else _answer(answer, done.status, text)

    def close(self) -> None:
        """End the warm process."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None


@dataclass(slots=True)
class Captures:
    """Captures the model that a factory makes, and compares with eager."""

    target: str
    methods: list[str]
    timeout: float = 600.0
    budget: float = 30.0
    runs: int = 0

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        self.runs += 1
        files = {path: source.raw for path, source in changed.items()}
        request = CaptureRequest(self.target, self.methods, self.budget, files)
        with tempfile.TemporaryDirectory(prefix="torchsan-fix-") as scratch:
            return _in_a_process("torchsan.fix.capture_child", request, scratch, os.getcwd(), self.timeout)

    def close(self) -> None:
        """Nothing is left running."""


def _in_a_process(module: str, request: object, scratch: str, folder: str, timeout: float) -> Trial:
    asked, answer = os.path.join(scratch, "request"), os.path.join(scratch, "answer")
    with open(asked, "wb") as file:
        pickle.dump(request, file)
    command = [sys.executable, "-m", module, asked, answer]
    with open(os.path.join(scratch, "output"), "wb+") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ended = _wait(process, timeout)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return _answer(answer, process.returncode, text) if ended else _late(timeout, text)


def _late(timeout: float, text: str) -> Trial:
    return Trial(error=f"the program did not end within {timeout:.0f} seconds", timed_out=True, output=text)


def environment() -> dict[str, str]:
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    theirs = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    # No compiled file may be left in the user's folders by a trial.
    return {**os.environ, "PYTHONPATH": os.pathsep.join([ours, *theirs]), "PYTHONDONTWRITEBYTECODE": "1", **SAME}


def _wait(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """True when the process ended by itself; it and its children are ended otherwise."""
    try:
        process.wait(timeout)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            _end_with_children(process.pid)
            process.wait()


def _end_with_children(pid: int) -> None:
    if hasattr(os, "killpg"):
        os.killpg(pid, signal.SIGKILL)
    else:  # Windows has no groups of processes; its own tool follows the tree
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(pid)], capture_output=True)


def _answer(path: str, status: int, text: str) -> Trial:
    if os.path.exists(path):
        with open(path, "rb") as file:
            trial: Trial = pickle.load(file)
        trial.output = text
        return trial
    last = text.strip().splitlines()[-1:] or [f"exit code {status}"]
    if "torchsan.errors.UsageError: " in last[0]:
        raise UsageError(last[0].rpartition("torchsan.errors.UsageError: ")[2])
    return Trial(error=f"the program ended without an answer ({last[0]})", status=status or 1, output=text)

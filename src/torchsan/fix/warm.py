"""A process that has imported torch and what else the program imports, and forks for every trial.

`python -m torchsan.fix.warm` reads orders from its standard input. A child of it is as a fresh interpreter is after
the imports: nothing of the program has run in it. Where that cannot be had, trials run as fresh interpreters.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from torchsan.fix.child import Request, answer


@dataclass(frozen=True, slots=True)
class Order:
    """A trial to run: where its answer and its output go, and how long it may take."""

    request: Request
    answer: str
    output: str
    folder: str
    timeout: float
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """How the child ended; nothing where no fork could be made."""

    forked: bool
    status: int = 0
    timed_out: bool = False


class Warm:
    """The other end: starts the process, sends orders, waits."""

    def __init__(self, environment: dict[str, str], module: str = "torchsan.fix.warm") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def run(self, order: Any) -> Done | None:
        """None when the process is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(order, self._process.stdin)
            self._process.stdin.flush()
            done: Done = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.PickleError):
            return None
        return done if done.forked else None

    def close(self) -> None:
        """The process ends its child, if one is running, and itself when nobody can order any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()


def serve() -> None:
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    silent = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(silent, standard)
    import_all(("torch", "torchsan.observe.recorder", "torchsan.fix.tape", "torchsan.fix.recording"))
    gc.freeze()
    while True:
        try:
            order: Order = pickle.load(orders)
        except EOFError:
            return
        import_all(order.modules)
        done = _forked(order, orders.fileno()) if threading.active_count() == 1 else Done(forked=False)
        pickle.dump(done, answers)
        answers.flush()


def import_all(names: tuple[str, ...]) -> None:
    for name in names:
        if name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except Exception:
            continue  # the program imports it in its own way


def _forked(order: Order, orders: int) -> Done:
    pid = os.fork()
    if not pid:
        _become_trial(order)
    began = time.monotonic()
    pause = 0.001
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return Done(True, os.waitstatus_to_exitcode(status))
        late = time.monotonic() - began > order.timeout
        alone = bool(select.select([orders], [], [], pause)[0])
        if late or alone:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Done(True, 1, timed_out=late)
        pause = min(2 * pause, 0.05)


def _become_trial(order: Order) -> Any:
    try:
        os.setsid()
        gc.unfreeze()
        output = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(order.folder)
        answer(order.request, order.answer)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    from torchsan.fix import warm

    # Under its own name, so that orders unpickle to the same classes.
    warm.serve()

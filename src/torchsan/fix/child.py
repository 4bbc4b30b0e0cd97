"""The process of one trial: `python -m torchsan.fix.child REQUEST ANSWER`, both pickled files."""

from __future__ import annotations

import atexit
import dataclasses
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchsan.fix.trial import Mode, Trial
from torchsan.observe.patches import Patches

if TYPE_CHECKING:
    from torchsan.fix.recording import Recording
    from torchsan.observe.program import Program

SEED = 20
# Seconds for a thread of the program to end.
LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to run and how."""

    mode: Mode
    limit: int | None
    script: str | None
    module: str | None
    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


def _load(request: Request) -> Program:
    from torchsan.observe import program

    if request.module is not None:
        return program.load_module(request.module, request.arguments)
    assert request.script is not None
    loaded = program.load_script(request.script, request.arguments)
    content = request.files.get(os.path.realpath(request.script))
    from torchsan.fix import observed, overlay

    if content is None:
        with open(loaded.path, "rb") as file:
            content = file.read()
    else:
        # The script keeps the path by which it was called; its edited text goes by that path, too.
        overlay.show(loaded.path, content)
    return dataclasses.replace(loaded, code=observed.compiled(content, loaded.path))


def perform(request: Request, kind: type[Recording] | None = None) -> Trial:
    """Run the program in this process."""
    from torchsan.fix import overlay
    from torchsan.fix.recording import Recording
    from torchsan.observe import program
    from torchsan.observe.imports import after_import

    known = set(sys.modules)
    environment = dict(os.environ)
    forkable = True
    overlay.install(request.files)
    loaded = _load(request)
    recording = (kind or Recording)(request.mode, request.limit)
    random.seed(SEED)

    def torch_imported() -> None:
        nonlocal forkable
        import torch

        # What is set before torch is imported may be meant for its import.
        forkable = dict(os.environ) == environment
        # A program that sets no seed must draw the same numbers in every trial, or nothing could be compared.
        torch.manual_seed(SEED)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(SEED)
        recording.start(code=loaded.code, root=loaded.search_path)

    after_import("torch", torch_imported)
    late = AtExit()
    main = lambda: dict(vars(sys.modules["__main__"]))  # noqa: E731
    trial = recording.run(lambda: late.after(program.run, loaded), variables=main)
    trial.modules = [name for name in list(sys.modules) if name not in known and _installed(name)]
    trial.forkable = forkable and threading.active_count() == 1
    return trial


@contextmanager
def _pools_ending(threads: list[threading.Thread]) -> Iterator[None]:
    """Workers of a pool that nobody shut down wait for ever; at the end of a program python sends them home."""
    pools: Any = sys.modules.get("concurrent.futures.thread")
    queues = getattr(pools, "_threads_queues", {})
    waiting = [queues[thread] for thread in threads if thread in queues]
    if not waiting or not hasattr(pools, "_shutdown"):
        yield
        return
    before, pools._shutdown = pools._shutdown, True
    try:
        for queue in waiting:
            queue.put(None)
        yield
    finally:
        pools._shutdown = before


class AtExit:
    """What python does when a script has ended: it waits for its threads, then calls what was left for the exit."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self._register = atexit.register
        self._patches = Patches()

    def after(self, run: Callable[..., Any], *given: Any) -> Any:
        self._patches.set(atexit, "register", self._noted)
        others = set(threading.enumerate())
        try:
            code = run(*given)
        finally:
            self._patches.remove()
        started = [thread for thread in threading.enumerate() if thread not in others and not thread.daemon]
        with _pools_ending(started):
            for thread in started:
                thread.join(LONGEST_WAIT)
        for function, args, kwargs in reversed(self._calls):
            function(*args, **kwargs)
        return code

    def _noted(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The program's own; those of libraries are theirs, and this process ends without them."""
        from torchsan.observe.sites import USER, kind_of

        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is not None and kind_of(code) == USER:
            self._calls.append((function, args, kwargs))
            return function
        return self._register(function, *args, **kwargs)


def _installed(name: str) -> bool:
    from torchsan.fix.files import is_users

    path = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(path, str) and not is_users(os.path.realpath(path))


def answer(request: Request, answer_path: str) -> None:
    """Run, write what was found, and end the process."""
    trial = perform(request)
    with open(answer_path, "wb") as file:
        pickle.dump(trial, file)
    sys.stdout.flush()
    sys.stderr.flush()
    # The program's threads and exit handlers had their run: a trial ends here, whatever they still wait for.
    os._exit(0)


def main(request_path: str, answer_path: str) -> None:
    with open(request_path, "rb") as file:
        request: Request = pickle.load(file)
    answer(request, answer_path)


if __name__ == "__main__":
    from torchsan.fix import child

    # Under its own name, so that the request unpickles to the same classes.
    child.main(*sys.argv[1:3])

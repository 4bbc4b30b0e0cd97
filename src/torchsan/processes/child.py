"""A process that a watched program started: followed from its first line on, or from its fork."""

from __future__ import annotations

import atexit
import multiprocessing.process
import os
import sys
from types import TracebackType
from typing import Any

from torchsan.model import Report
from torchsan.processes.journal import Journal
from torchsan.processes.options import RunOptions
from torchsan.processes.session import Session

_session: Session | None = None
_outcome = "ended"


def current() -> Session | None:
    return _session


def adopt(session: Session) -> None:
    """From now on this is the session of the process; its forks get their own."""
    global _session
    if _session is None:
        os.register_at_fork(after_in_child=_forked)
    _session = session


def begin() -> None:
    """Follow this process, if it is part of a run. Called before its first line."""
    options = RunOptions.find(os.environ)
    if options is None:
        return
    journal = Journal(options.folder, _role())
    session = Session(options, journal, Report(command=list(options.command)))
    adopt(session)
    watch_children(journal)
    previous = sys.excepthook
    sys.excepthook = lambda *details: _failed(previous, *details)
    atexit.register(_end)
    if options.root == os.getpid():
        # The process that was started by hand has become another program: the report is still its to make.
        from torchsan.processes.reporting import finish

        atexit.unregister(_end)
        atexit.register(lambda: finish(session, _outcome))
    session.begin()


def _role() -> str:
    if os.environ.get("RANK", "").isdigit():
        return "rank"
    return "spawned" if "--multiprocessing-fork" in getattr(sys, "orig_argv", ()) else "program"


def _failed(previous: Any, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    global _outcome
    _outcome = f"failed with {kind.__name__}"
    if _session is not None:
        _session.explain(error)
    previous(kind, error, traceback)


def _end() -> None:
    if _session is not None and _session.journal.pid == os.getpid():
        _session.end(_outcome)


# -- forks ------------------------------------------------------------------------------------------


def _forked() -> None:
    """In the child: what was found before the fork is the parent's to tell."""
    global _session
    parent = _session
    if parent is None or not os.path.isdir(parent.options.folder):
        _session = None
        return
    journal = Journal(parent.options.folder, "forked")
    journal.rank = parent.journal.rank
    parent.forked(journal)
    # Processes of multiprocessing leave by os._exit; they run their finalizers before.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(parent, lambda session: _end_with_process(util))


def _end_with_process(util: Any) -> None:
    name = multiprocessing.process.current_process().name
    if _session is not None:
        _session.journal.write("name", name=name)
    util.Finalize(None, _end, exitpriority=-1000)


# -- children that are not ours to follow -----------------------------------------------------------


def watch_children(journal: Journal) -> None:
    """Note every Python that is started, so that one which cannot be followed is named."""
    import subprocess

    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def _execute_child(popen: Any, args: Any, *rest: Any) -> Any:
        result = start(popen, args, *rest)
        first = args if isinstance(args, (str, bytes, os.PathLike)) else next(iter(args), "")
        if "python" in os.path.basename(os.fsdecode(first)) and not _compilers_own():
            words = args if isinstance(args, (list, tuple)) else [args]
            told = _session.journal if _session is not None else journal
            told.write("child", pid=popen.pid, what=" ".join(os.fsdecode(word) for word in words)[:80])
        return result

    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def _compilers_own() -> bool:
    """A compiler asks processes of its own what the processor can do: nothing of the program's runs in them."""
    if "torch" not in sys.modules:
        return False
    from torchsan import compat_compile

    return compat_compile.is_inductors(sys._getframe(2))

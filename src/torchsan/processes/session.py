"""One process of a run: the recorder starts when torch is imported, and the journal hears of everything at once."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from torchsan.model import Finding, Report
from torchsan.observe.imports import after_import
from torchsan.observe.program import StopProgram
from torchsan.processes.journal import STACKS, Journal
from torchsan.processes.options import RunOptions

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder

# How often a process looks whether another one asked all to stop, and how long it has to do so by itself.
LOOK, GRACE = 0.2, 1.5


class Session:
    def __init__(self, options: RunOptions, journal: Journal, report: Report, *, code: CodeType | None = None) -> None:
        self.options = options
        self.journal = journal
        self.report = report
        self.recorder: Recorder | None = None
        self.on_finding: Callable[[Finding], None] | None = None
        # What ends the process when another one asked all to stop and this one is stuck in torch.
        self.on_stop: Callable[[], None] = lambda: os._exit(0)
        self._code = code

    def begin(self) -> None:
        after_import("torch", self._torch_imported)
        self.listen_for_the_end()

    def forked(self, journal: Journal) -> None:
        """In the child of a fork: its own journal, and nothing of what the parent found."""
        self.journal = journal
        self.report.findings.clear()
        self.report.notes.clear()
        self.on_stop = lambda: os._exit(0)
        if self.recorder is not None:
            self.recorder.journal = journal
            journal.watching(self.report.torch or "")
        self.listen_for_the_end()

    def _torch_imported(self) -> None:
        import torch

        from torchsan.observe.recorder import Recorder
        from torchsan.observe.sites import add_user_root

        for root in self.options.user_roots:
            add_user_root(root)
        self.recorder = Recorder(
            self.report,
            on_finding=self._found,
            at_write=self.options.at_write,
            eager=self.options.eager,
            memory=self.options.memory,
            timeline=self.options.timeline,
        )
        self.recorder.journal = self.journal
        code = self._code or _main_code()
        if code is not None:
            self.recorder.user_code(code)
        if self.options.steps:
            self.recorder.stop_after(self.options.steps, StopProgram)
        self.journal.watching(torch.__version__)
        self.recorder.start()

    def _found(self, finding: Finding) -> None:
        self.journal.finding(finding)
        if self.on_finding is not None:
            self.on_finding(finding)
        if self.options.fail_fast and finding.level != "note" and finding.certainty != "possible":
            self.journal.ask_all_to_stop()
            raise StopProgram

    def explain(self, error: BaseException) -> None:
        if self.recorder is not None:
            self.recorder.explain(error)

    def end(self, outcome: str) -> None:
        """Stop recording and write the last record; once."""
        if self.recorder is not None:
            self.recorder.stop()
        self.journal.end(outcome, self.report)

    # -- ends that come from outside ----------------------------------------------------------------

    def listen_for_the_end(self) -> None:
        self._note_stacks()
        if self.options.fail_fast or self.options.steps:
            threading.Thread(target=self._watch_for_stop, name="torchsan", daemon=True).start()

    def _note_stacks(self) -> None:
        """A rank that hangs is ended by a signal: where it stood is written by C code, whatever Python is stuck in."""
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            # Not for programs that handle the signal themselves.
            if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, None) and hasattr(faulthandler, "register"):
                self._stacks = os.open(self.journal.path + STACKS, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                faulthandler.register(signal.SIGTERM, file=self._stacks, all_threads=True, chain=True)
        except (OSError, ValueError):
            return

    def _watch_for_stop(self) -> None:
        while not self.journal.ended:
            time.sleep(LOOK)
            if self.journal.asked_to_stop():
                time.sleep(GRACE)
                if not self.journal.ended:
                    self.journal.end("stopped", self.report)
                    self.on_stop()
                return


def _main_code() -> CodeType | None:
    """The program's main script, which no import has shown us."""
    main: Any = sys.modules.get("__main__")
    path: Any = getattr(main, "__file__", None)
    try:
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None

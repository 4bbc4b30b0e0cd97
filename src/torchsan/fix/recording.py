"""One run of something in this process, under the recorder or healed, on the tape."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchsan.fix.trial import Mode, Trial
from torchsan.model import Finding, Report
from torchsan.model.source import real_path
from torchsan.observe import program
from torchsan.observe.program import StopProgram


class Recording:
    """Starts when torch is there; `trial` is what is known when it has ended."""

    def __init__(self, mode: Mode, limit: int | None) -> None:
        self.mode = mode
        self.limit = limit
        self.report = Report()
        self._tape: Any = None
        self._recorder: Any = None
        self._heal: Any = None
        self._answers: Any = None
        self._aliases: Any = None

    def start(self, *, code: Any = None, root: str = "") -> None:
        """Called once torch is imported."""
        from torchsan.fix.tape import Tape
        from torchsan.observe.recorder import Recorder
        from torchsan.observe.sites import add_user_root

        if root:
            add_user_root(root)
        self._tape = Tape(self.limit, weigh=self.mode == "watch")
        self._tape.start()
        if self.mode == "heal":
            from torchsan.fix.aliases import AliasLog
            from torchsan.observe.healing import heal

            self._aliases = AliasLog()
            self._aliases.start()
            self._heal = heal(codes=[code] if code is not None else [])
            # Healed, the program goes on: every value that was overwritten and then needed is told.
            self.report = self._heal.__enter__()
            return
        from torchsan.fix.answers import CaptureAnswers

        self._answers = CaptureAnswers()
        self._answers.start()
        self._recorder = Recorder(self.report)
        self._answers.aside = self._recorder.aside
        if code is not None:
            self._recorder.user_code(code)
        self._recorder.start()

    @property
    def passes(self) -> int:
        """Backward passes so far."""
        return len(self._tape.passes) if self._tape is not None else 0

    def run(self, body: Callable[[], Any]) -> Trial:
        """Run to the end, to the limit or to the first error."""
        trial = Trial()
        error: BaseException | None = None
        try:
            status = body()
            trial.status = program.exit_status(status) if isinstance(status, (int, str)) else 0
        except StopProgram:
            trial.stopped = True
        except KeyboardInterrupt:
            self._finish(None)
            raise
        except BaseException as raised:
            error = raised
        self._finish(error)
        if error is not None:
            trial.error = _one_line(error)
            trial.explained = isinstance(getattr(error, "__torchsan__", None), list)
        if self._tape is not None:
            trial.passes, trial.steps, trial.kept = self._tape.passes, self._tape.steps, self._tape.kept
            trial.stopped = trial.stopped or self._tape.stopped
        trial.aliases = self._aliases.found if self._aliases is not None else {}
        trial.answers = self._answers.found if self._answers is not None else []
        trial.findings = [with_full_paths(finding) for finding in self.report.findings]
        trial.troubles = list(self.report.notes)
        return trial

    def _finish(self, error: BaseException | None) -> None:
        if self._recorder is not None:
            if error is not None:
                self._recorder.explain(error)
            self._recorder.stop()
        if self._aliases is not None:
            self._aliases.stop()
        if self._heal is not None:
            self._heal.__exit__(None, None, None)
        if self._answers is not None:
            self._answers.stop()
        if self._tape is not None:
            self._tape.stop()
        sys.stdout.flush()


def with_full_paths(finding: Finding) -> Finding:
    """Reports tell paths from where a process was started; trials are read by another process."""
    return replace(finding, spans=tuple(replace(s, path=real_path(s.path)) for s in finding.spans))


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")

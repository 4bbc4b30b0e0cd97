"""One run of something in this process, under the recorder or in another mode, on the tape."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchsan.fix.coverage import Coverage
from torchsan.fix.outlets import Outlets
from torchsan.fix.trial import HEALED, WATCHED, Mode, Trial
from torchsan.model import Finding, Report
from torchsan.model.source import real_path
from torchsan.observe import program
from torchsan.observe.program import StopProgram

MOST_PRINTED = 200_000


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
        self._copies: Any = None
        self._coverage: Coverage | None = None
        self._outlets = Outlets()
        # What else the mode needs: started last, stopped first.
        self._extras: list[Any] = []
        self._began = time.perf_counter()

    def start(self, *, code: Any = None, root: str = "") -> None:
        """Called once torch is imported."""
        from torchsan.fix import keeping
        from torchsan.fix.tape import Tape
        from torchsan.observe.sites import add_user_root

        if root:
            add_user_root(root)
        self._copies = keeping.new_log()
        if self.mode == "memory":
            self._start_measured(code)
            return
        healed = self.mode in HEALED
        self._tape = Tape(self.limit, weigh=self.mode == "watch", retain=healed)
        self._tape.start()
        if healed:
            self._start_healed(code)
        elif self.mode in WATCHED:
            self._start_watched(code)
        self._extras = _extras(self.mode)
        for extra in self._extras:
            extra.start()

    def _start_healed(self, code: Any) -> None:
        from torchsan.fix.aliases import AliasLog
        from torchsan.observe.healing import heal

        if self.mode == "heal":
            self._aliases = AliasLog()
            self._aliases.start()
        self._heal = heal(codes=[code] if code is not None else [])
        # Healed, the program goes on: every value that was overwritten and then needed is told.
        self.report = self._heal.__enter__()

    def _start_watched(self, code: Any) -> None:
        from torchsan.fix.aliases import AliasLog
        from torchsan.fix.answers import CaptureAnswers
        from torchsan.observe.recorder import Recorder

        self._copies.start()
        if self.mode == "shaken watch":
            self._aliases = AliasLog(few=True)
            self._aliases.start()
        self._answers = CaptureAnswers()
        self._answers.start()
        self._recorder = Recorder(self.report)
        self._answers.aside = self._recorder.aside
        if code is not None:
            self._recorder.user_code(code)
        self._recorder.start()

    def _start_measured(self, code: Any) -> None:
        """Without the tape, whose own tensors would be measured, too."""
        from torchsan.fix.draws import SameDraws
        from torchsan.observe.recorder import Recorder

        self._recorder = Recorder(self.report, memory=True)
        if code is not None:
            self._recorder.user_code(code)
        if self.limit is not None:
            self._recorder.stop_after(self.limit, StopProgram)
        self._recorder.start()
        self._extras = [SameDraws()]
        for extra in self._extras:
            extra.start()

    @property
    def passes(self) -> int:
        """Backward passes so far."""
        return len(self._tape.passes) if self._tape is not None else 0

    def run(self, body: Callable[[], Any], *, variables: Callable[[], dict[str, Any]] | None = None) -> Trial:
        """Run to the end, to the limit or to the first error.

        A script says what it ends with in its variables, and may return an exit code; a function returns a result.
        """
        trial = Trial()
        error: BaseException | None = None
        result: Any = None
        printed = _Printed(sys.stdout)
        sys.stdout = printed
        self._outlets.start()
        if self.mode == "lines":
            self._coverage = Coverage()
            self._coverage.start()
        try:
            result = body()
            if variables is not None:
                trial.status = trial.exit_code = program.exit_status(result)
        except StopProgram:
            trial.stopped = True
        except KeyboardInterrupt:
            self._finish(None)
            raise
        except BaseException as raised:
            error = raised
        finally:
            if self._coverage is not None:
                self._coverage.stop()
            self._outlets.stop()
            if sys.stdout is printed:
                sys.stdout = printed.original
        self._finish(error)
        trial.printed = printed.text
        if error is not None:
            trial.error = _one_line(error)
            trial.explained = isinstance(getattr(error, "__torchsan__", None), list)
        self._take(trial, variables() if variables is not None else {}, None if variables is not None else result)
        trial.seconds = time.perf_counter() - self._began
        return trial

    def _take(self, trial: Trial, variables: dict[str, Any], result: Any) -> None:
        if self._tape is not None:
            trial.passes, trial.steps, trial.kept = self._tape.passes, self._tape.steps, self._tape.kept
            trial.stopped = trial.stopped or self._tape.stopped
            trial.astride = self._tape.astride.found
            if not trial.error and not trial.stopped:
                trial.ends = [*self._tape.endings.found(variables, result), *self._outlets.found()]
            trial.idle = self._tape.endings.idle()
        if self._coverage is not None:
            trial.ran, trial.again = self._coverage.found()
        trial.slopes = [slopes for extra in self._extras for slopes in getattr(extra, "found", ())]
        trial.leaf_uses = [uses for extra in self._extras for uses in getattr(extra, "leaf_uses", ())]
        for extra in self._extras:
            trial.meanings.update(getattr(extra, "meanings", {}))
            trial.unseen |= getattr(extra, "unseen", set())
            trial.made.update(getattr(extra, "made_by_call", {}))
        trial.copies = self._copies.copies if self._copies is not None else 0
        trial.copies_written = self._copies is not None and self._copies.written
        trial.aliases = self._aliases.found if self._aliases is not None else {}
        trial.answers = self._answers.found if self._answers is not None else []
        trial.findings = [with_full_paths(finding) for finding in self.report.findings]
        trial.memory = self.report.memory
        trial.live_nodes = list(self._recorder.live_nodes) if self._recorder is not None else []
        trial.troubles = list(self.report.notes)

    def _finish(self, error: BaseException | None) -> None:
        for extra in reversed(self._extras):
            extra.stop()
        if self._recorder is not None:
            if error is not None:
                self._recorder.explain(error)
            self._recorder.stop()
        if self._copies is not None:
            self._copies.stop()
        if self._aliases is not None:
            self._aliases.stop()
        if self._heal is not None:
            self._heal.__exit__(None, None, None)
        if self._answers is not None:
            self._answers.stop()
        if self._tape is not None:
            self._tape.stop()
        sys.stdout.flush()


def _extras(mode: Mode) -> list[Any]:
    from torchsan.fix import draws, fresh, literal, shaking, slopes, unseen

    made: dict[str, list[Callable[[], Any]]] = {
        "watch": [],
        "lines": [unseen.UnseenWrites],
        "heal": [literal.Literal, unseen.UnseenWrites],
        "scramble": [literal.Literal, literal.Scramble, shaking.Shaken],
        "frozen": [literal.Literal, literal.Frozen],
        "shaken": [literal.Literal, shaking.Shaken],
        "shaken watch": [shaking.Shaken],
        "shaken alike": [lambda: shaking.Shaken(numbered=False)],
        "apart": [literal.Apart],
        "fresh": [fresh.Fresh],
        "uncached": [literal.Uncached],
        "slopes": [slopes.Meter],
        "memory": [],
    }
    return [draws.SameDraws(), *(make() for make in made[mode])]


class _Printed:
    """Stands for standard output, and keeps what goes there."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        if self._size < MOST_PRINTED:
            self._parts.append(text)
            self._size += len(text)
        return int(self.original.write(text) or 0)

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


def with_full_paths(finding: Finding) -> Finding:
    """Reports tell paths from where a process was started; trials are read by another process."""
    return replace(finding, spans=tuple(replace(s, path=real_path(s.path)) for s in finding.spans))


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")

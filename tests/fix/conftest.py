"""A lab for scripts inside the test's own process: a fresh interpreter for each trial would take minutes."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchsan.fix import observed, overlay
from torchsan.fix.child import AtExit
from torchsan.fix.engine import Engine
from torchsan.fix.outcome import Outcome
from torchsan.fix.recording import Recording
from torchsan.fix.source import Source
from torchsan.fix.trial import Mode, Trial


class Here:
    def __init__(self, path: Path, limit: int) -> None:
        self.path = str(path)
        self.limit = limit
        self.runs = 0

    def close(self) -> None:
        pass

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        self.runs += 1
        source = changed.get(self.path) or Source.read(self.path)
        overlay.show(self.path, source.raw)
        code = observed.compiled(source.raw, self.path)
        torch.manual_seed(3)
        random.seed(3)
        recording = Recording(mode, self.limit)
        recording.start(code=code)
        with contextlib.redirect_stdout(io.StringIO()):
            names = {"__name__": "__main__", "__file__": self.path}
            trial = recording.run(lambda: AtExit().after(exec, code, names), variables=lambda: names)
        linecache.cache.pop(self.path, None)
        return trial


@pytest.fixture
def lab() -> type[Here]:
    return Here


@pytest.fixture
def mend(tmp_path: Path) -> Callable[..., Outcome]:
    """Search for a fix of a script, given as source."""

    def search(source: str, name: str = "program.py", limit: int = 10) -> Outcome:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source).lstrip("\n"))
        return Engine(Here(path, limit)).run()

    return search


def edited(outcome: Outcome) -> str:
    """The text of the one file that was changed."""
    [source] = outcome.changed.values()
    return source.text

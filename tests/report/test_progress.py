"""The bar for a time budget."""

from __future__ import annotations

import io
import sys

import pytest

from torchsan.commands.verify import _progress
from torchsan.report.progress import budget_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_says_what_is_done_and_how_long_it_may_take() -> None:
    stream = Terminal()
    with budget_bar(stream, 60) as update:
        update("jit.trace")
    assert "jit.trace" in stream.getvalue()
    assert "of 60 s" in stream.getvalue()


def test_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with _progress(True, 5) as update:
            assert (update is not None) is shown
        assert bool(stream.getvalue()) is shown

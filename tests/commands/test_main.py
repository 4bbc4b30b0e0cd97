"""What the command line does where nothing else answers."""

from __future__ import annotations

import pytest

from torchsan.__main__ import main
from torchsan.commands import explain


def test_a_mistake_of_ours_is_one_sentence(monkeypatch, capsys):
    def execute(args):
        raise ValueError("two lengths")

    monkeypatch.setattr(explain, "execute", execute)
    assert main(["explain", "TS101"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "ValueError: two lengths" in told
    monkeypatch.setenv("TORCHSAN_DEBUG", "1")
    with pytest.raises(ValueError, match="two lengths"):
        main(["explain", "TS101"])

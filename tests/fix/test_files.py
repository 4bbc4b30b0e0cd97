"""Writing is all or nothing, keeps modes, and never overwrites somebody else's change."""

from __future__ import annotations

import os

import pytest

from torchsan.errors import UsageError
from torchsan.fix import files
from torchsan.fix.source import Source


def sources(path, new: bytes) -> tuple[Source, Source]:
    return Source.read(str(path)), Source(str(path), new)


def test_mode_is_kept_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"a = 1\n")
    path.chmod(0o750)
    files.write([sources(path, b"a = 2\n")])
    assert path.read_bytes() == b"a = 2\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["a.py"]


def test_a_file_that_changed_meanwhile_stops_everything(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    for path in (first, second):
        path.write_bytes(b"a = 1\n")
    pairs = [sources(first, b"a = 2\n"), sources(second, b"a = 2\n")]
    second.write_bytes(b"a = 3\n")
    with pytest.raises(UsageError, match="changed while"):
        files.write(pairs)
    assert first.read_bytes() == b"a = 1\n"
    assert second.read_bytes() == b"a = 3\n"


def test_libraries_are_not_ours_to_edit():
    import torch

    assert not files.is_users(os.path.realpath(torch.__file__))
    assert not files.is_users(os.path.realpath(os.__file__))
    assert files.is_users("/home/someone/project/train.py")

"""What is said of files whose syntax is broken, in small trees and in large ones."""

from __future__ import annotations

import sys

import pytest

from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import Source
from torchsan.check.reading.balance import looks_whole
from torchsan.check.reading.versions import not_readable
from torchsan.check.runner import LARGE_TREE, check_files

BROKEN = {
    "open bracket": "x = (1,\n",
    "no name": "def f(:\n    pass\n",
    "open docstring": 'def f():\n    """text\n',
    "merge": "a = 1\n<<<<<<< ours\na = 2\n",
    "python 2": "def f():\n    print 'x'\n",
    "null": "a = 1\n\0\n",
}
HERE = ".".join(map(str, sys.version_info[:2]))


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("thorough", [True, False])
def test_one_line_is_said(name, thorough):
    assert analyse(Source("a.py", BROKEN[name]), thorough=thorough).error
    assert not looks_whole(BROKEN[name])


@pytest.mark.parametrize("text", ["", "x = 1\n", 'def f(a: list[int]) -> dict[str, int]:\n    """(a) [b]"""\n'])
def test_whole_files_look_whole(text):
    assert looks_whole(text)
    assert not analyse(Source("a.py", text), thorough=False).error


def test_errors_that_leave_pairs_intact_are_told_in_small_trees_only(tmp_path):
    for number in range(LARGE_TREE):
        (tmp_path / f"f{number}.py").write_text("x = = 1\n" if number == 7 else "x = 1\n")
    paths = sorted(map(str, tmp_path.glob("*.py")))
    large = check_files(paths, jobs=1, cache_folder=tmp_path / "kept")
    assert not any(result.error for result in large)
    small = check_files(paths[:-1], jobs=1, cache_folder=tmp_path / "kept")
    assert [result.error for result in small if result.error] == [f"line 1: invalid syntax for Python {HERE}"]


def test_suspicious_files_are_always_parsed():
    text = "import torch\nfrom torch import nn\n\nx = nn.Linear(1, 1)\nx.weight += 1\ny = = 2\n"
    assert analyse(Source("a.py", text), thorough=False).error.startswith("line 6: ")


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("class Holder[**P, T]:", "3.12"),
        ("def first[T](items: list[T]) -> T:", "3.12"),
        ("type Pair = tuple[int, int]", "3.12"),
        ("    except ValueError, TypeError:", "3.14"),
    ],
)
def test_syntax_of_a_newer_python_is_called_that(line, needed):
    said = not_readable("invalid syntax", line, (3, 11))
    assert "3.11" in said
    assert f"looks like Python {needed}" in said
    assert "looks like" not in not_readable("invalid syntax", line, (3, 15))


def test_what_no_python_reads_is_told_with_the_one_that_read_it():
    assert not_readable("invalid syntax", "x = = 1", (3, 11)) == "invalid syntax for Python 3.11"
    assert not_readable("'(' was never closed", "x = (1,", (3, 11)) == "'(' was never closed"

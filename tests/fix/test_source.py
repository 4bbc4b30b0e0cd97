"""Editing keeps every byte that it does not mean to change."""

from __future__ import annotations

import ast

import pytest

from torchsan.errors import UsageError
from torchsan.fix.source import Edit, Source, diff, line_map
from torchsan.model import Span


def span(line: int, column: int, end_column: int) -> Span:
    return Span("x.py", line, column, line, end_column, "mutated", "")


@pytest.mark.parametrize(
    "raw",
    [
        b"h = 1\r\nh += 2  # keep\r\n",
        b"\xef\xbb\xbfh = 1\nh += 2\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'; h = 1\nh += 2\n",
        "größe = 'ä'; h = 1\nh += 2".encode(),
        b"if True:\n\th = 1\n\th += 2\n",
    ],
    ids=["crlf", "bom", "latin-1", "utf-8 without a last newline", "tabs"],
)
def test_only_the_edited_characters_change(raw):
    source = Source("x.py", raw)
    statement = next(node for node in ast.walk(source.tree) if isinstance(node, ast.AugAssign))
    after = source.edited([Edit(source.end(statement.target), source.start(statement.value), " = h + ")])
    assert after is not None
    assert after.raw == raw.replace(b"h += 2", b"h = h + 2")


def test_edits_that_overlap_or_break_the_syntax_are_refused():
    source = Source("x.py", b"a = 1\n")
    assert source.edited([Edit(0, 3, "b"), Edit(2, 5, "c")]) is None
    assert source.edited([Edit(0, 1, "a b")]) is None


def test_columns_count_characters_not_bytes():
    source = Source("x.py", "größe = f(ä)\n".encode())
    found = source.expression(span(1, 9, 13))
    assert found is not None
    assert source.segment(found) == "f(ä)"


def test_statement_is_the_innermost():
    source = Source("x.py", b"for i in x:\n    y = i\n")
    assert isinstance(source.statement(span(2, 5, 6)), ast.Assign)


def test_lines_are_followed_through_edits():
    before, after = Source("x.py", b"a = 1\nb = 2\nc = 3\n"), Source("x.py", b"a = 1\nnew = 0\nb = 2\nc = 4\n")
    mapped = line_map(before, after)
    assert mapped[1] == 1
    assert mapped[3] == 2
    assert mapped[4] == 3
    assert 2 not in mapped
    assert "+new = 0\n" in diff(before, after)


def test_what_is_not_python_is_said_in_one_sentence():
    with pytest.raises(UsageError, match="is not Python source"):
        Source("x.py", b"def (")

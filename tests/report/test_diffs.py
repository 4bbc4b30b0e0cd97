"""Unified diffs are read back as the edits that they state."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchsan.report.diffs import Edit, edits

LINES = st.lists(st.sampled_from(["a", "b", "-", "+", "--- x", "+++ y", "@@ -1 +1 @@", ""]), max_size=12)


def _apply(lines: list[str], changes: list[Edit]) -> list[str]:
    result = list(lines)
    for edit in reversed(changes):
        start = edit.line - 1
        result[start : start + edit.removed] = edit.inserted.splitlines()
    return result


# A busy machine is no reason to fail.
@given(LINES, LINES, st.integers(0, 3))
def test_edits_turn_the_old_text_into_the_new(old: list[str], new: list[str], context: int) -> None:
    diff = "\n".join(difflib.unified_diff(old, new, "a/f.py", "b/f.py", n=context, lineterm=""))
    assert _apply(old, edits(diff).get("f.py", [])) == new


def test_several_files_are_kept_apart() -> None:
    one = difflib.unified_diff(["a"], ["b"], "a/one.py", "b/one.py", lineterm="")
    two = difflib.unified_diff(["a"], ["a", "c"], "two.py", "two.py", lineterm="")
    found = edits("\n".join([*one, *two]))
    assert found == {"one.py": [Edit(1, 1, "b\n")], "two.py": [Edit(2, 0, "c\n")]}


@pytest.mark.parametrize("text", ["", "no diff", "+++ f.py", "@@ -1 +1 @@\n-a", "+++ f\n@@ -1 +1 @@"])
def test_what_is_no_diff_gives_no_edit(text: str) -> None:
    assert not any(edits(text).values())

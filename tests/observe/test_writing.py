"""What kind of statement an instruction is, whatever this Python calls it."""

from __future__ import annotations

import dis

import pytest

from torchsan.observe.writing import written_as


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("x[i] = 1", "__setitem__"),
        ("x[i:] = 1", "__setitem__"),
        ("x[i:j] = 1", "__setitem__"),
        ("x[i:j:2] = 1", "__setitem__"),
        ("x[1:3] = 1", "__setitem__"),
        ("x[:, i:j] = 1", "__setitem__"),
        ("x.imag = 1", ".imag ="),
        ("x += 1", "__iadd__"),
        ("x //= 2", "__ifloordiv__"),
        ("x + 1", None),
        ("x.add_(1)", None),
    ],
)
def test_the_instruction_that_writes_is_told(statement: str, told: str | None) -> None:
    code = compile(statement, "program.py", "exec")
    said = {written_as(code, step.offset) for step in dis.get_instructions(code)}
    assert said - {None} == {told} - {None}

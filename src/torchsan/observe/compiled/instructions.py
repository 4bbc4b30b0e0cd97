"""Where in the code that a source compiles to a place of that source is."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from torchsan.model import Place
from torchsan.observe import expressions as syntax
from torchsan.observe.sites import place_in

_DOES = ("CALL", "BINARY_OP", "STORE_SUBSCR", "STORE_ATTR")


@lru_cache(maxsize=64)
def code_of(path: str) -> CodeType | None:
    """What the source of a file compiles to."""
    file = syntax.file_of(path)
    try:
        return compile(file.tree, path, "exec", dont_inherit=True) if file is not None else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@lru_cache(maxsize=512)
def instruction_at(place: Place) -> tuple[CodeType, int] | None:
    """The instruction that does what stands at a place: the last of those that cover exactly it."""
    whole = code_of(place.path)
    if whole is None:
        return None
    span = (place.line, place.column, place.end_line, place.end_column)
    for code in _codes(whole):
        if not any(line == place.line for _, _, line in code.co_lines()):
            continue
        found = [
            instruction.offset
            for instruction in dis.get_instructions(code)
            if instruction.opname.startswith(_DOES) and _span(place_in(code, instruction.offset)) == span
        ]
        if found:
            return code, found[-1]
    return None


def _span(place: Place) -> tuple[int, int, int, int]:
    return place.line, place.column, place.end_line, place.end_column

"""Numbers that count the rounds of a loop: the first is known, of the others that they are larger."""

from __future__ import annotations

import ast

from torchsan.check.modelling.values import Plain

# For a number that is at least `least`, compared with a smaller one.
_ABOVE: dict[type[ast.cmpop], bool] = {
    ast.Eq: False,
    ast.NotEq: True,
    ast.Gt: True,
    ast.GtE: True,
    ast.Lt: False,
    ast.LtE: False,
}
# … and with `least` itself.
_AT: dict[type[ast.cmpop], bool] = {ast.GtE: True, ast.Lt: False}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.Lt,
    ast.Lt: ast.Gt,
    ast.GtE: ast.LtE,
    ast.LtE: ast.GtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


def rounds_from(start: int, count: int) -> list[Plain]:
    """The numbers that count upwards from `start`: how far is not known."""
    return [Plain(start, True), *(Plain(least=start + i) for i in range(1, count))]


def compared(op: ast.cmpop, left: Plain, right: Plain) -> bool | None:
    """What a comparison with such a number tells; None where it hangs on the number itself."""
    kind = type(op)
    if left.least is None and right.least is not None and kind in _MIRRORED:
        left, right, kind = right, left, _MIRRORED[kind]
    if left.least is None or not right.known or not isinstance(right.value, int):
        return None
    if right.value < left.least:
        return _ABOVE.get(kind)
    return _AT.get(kind) if right.value == left.least else None


def moved(op: ast.operator, left: Plain, right: Plain) -> Plain | None:
    """`i + 1`, `i - 1`."""
    if isinstance(op, ast.Add) and left.least is None:
        left, right = right, left
    if left.least is None or not right.known or not isinstance(right.value, int) or isinstance(right.value, bool):
        return None
    if isinstance(op, ast.Add):
        return Plain(least=left.least + right.value)
    return Plain(least=left.least - right.value) if isinstance(op, ast.Sub) else None

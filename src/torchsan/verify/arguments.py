"""Whole numbers that the program hands to functions of torch.

A tracer follows a size through arithmetic and into `view`, but some arguments (the groups of a convolution) are plain
numbers to torch, and so constants of the capture, without any Python statement that turns a tensor into a number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.overrides import TorchFunctionMode

from torchsan.model import Place
from torchsan.verify.frames import call_at, user_places

# Where in the source, which argument of which function, its value; gives the value to go on with.
Seen = Callable[[list[Place], str, Any], Any]


class Arguments(TorchFunctionMode):  # type: ignore[misc]
    """Shows every argument that is a whole number, or several of them, and hands on what it gets back."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: dict[int | str, Any] = {**dict(enumerate(args)), **(kwargs or {})}
        numbers = [slot for slot, value in given.items() if _is_number(value)]
        places = user_places() if numbers else []
        for slot in numbers if places else []:
            name = f"{getattr(func, '__name__', '')}({slot})"
            given[slot] = self.seen([_argument(places[0], slot, len(args)), *places[1:]], name, given[slot])
        return func(*(given[index] for index in range(len(args))), **{name: given[name] for name in kwargs or {}})


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_number(item) for item in value)
    return isinstance(value, int) and not isinstance(value, bool)


def _argument(place: Place, slot: int | str, positional: int) -> Place:
    """The argument in the source, as far as it can be told; else the call."""
    call = call_at(place)
    node: ast.expr | ast.keyword | None = None
    if call is not None and isinstance(slot, str):
        node = next((keyword for keyword in call.keywords if keyword.arg == slot), None)
    elif call is not None and isinstance(slot, int) and not any(isinstance(a, ast.Starred) for a in call.args):
        # A method's tensor comes first, and stands before the dot.
        index = slot - (positional - len(call.args))
        node = call.args[index] if 0 <= index < len(call.args) and positional - len(call.args) in (0, 1) else None
    if node is None:
        return place
    end_line, end_column = node.end_lineno or node.lineno, (node.end_col_offset or node.col_offset) + 1
    return replace(place, line=node.lineno, column=node.col_offset + 1, end_line=end_line, end_column=end_column)

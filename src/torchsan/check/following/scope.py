"""Names of the program that is followed."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.modelling.values import Plain


class Scope:
    """Names of one call (or of the module), with the scope around it."""

    __slots__ = (
        "chosen",
        "function",
        "kept_in_turn",
        "names",
        "outer",
        "overwritten",
        "program",
        "returned",
        "yielded",
    )

    def __init__(self, outer: Scope | None, function: Any = None) -> None:
        self.names: dict[str, Any] = {}
        self.outer = outer
        self.function = function
        # The file whose top-level names these are, when it is not the one that is checked.
        self.program: Any = None
        self.returned: Any = Plain(None, True)
        self.yielded: list[Any] = []
        # Names whose tensor a call has overwritten: name to tensor, write, call.
        self.overwritten: dict[str, tuple[Any, Any, ast.Call]] = {}
        # Names bound to memory of leaves where a comparison held: value, leaves, time, assignment.
        self.chosen: dict[str, tuple[Any, list[Any], int, ast.Assign]] = {}
        # Names bound, in some rounds of a loop only, to what another name stood for: that name and the value.
        self.kept_in_turn: dict[str, tuple[str, Any]] = {}

    @property
    def module(self) -> Scope:
        """The top-level names around it."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

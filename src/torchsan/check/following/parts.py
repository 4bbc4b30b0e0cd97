"""What the parts of the interpreter share."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torchsan.check.following.machine import Machine
    from torchsan.check.following.oracle import Oracle
    from torchsan.check.following.scope import Scope
    from torchsan.check.modelling.torch_model import TorchModel
    from torchsan.check.modelling.values import Instance
    from torchsan.check.reading.program import FunctionInfo, Program
    from torchsan.check.reading.project import Project

MAX_DEPTH = 14
MAX_DEPTH_ALONE = 4
# Statements that a call, in a function on its own, is followed for.
CALL_ALONE = 60
MOST_RECURSION = 3
MOST_ITEMS = 40


def is_key(node: ast.expr) -> bool:
    """A string, as it stands or put together: no tensor is asked for that."""
    if isinstance(node, ast.BinOp):
        return is_key(node.left) or is_key(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def names_in(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]


class Parts:
    """State of one path; `Interpreter` puts the parts together."""

    program: Program
    oracle: Oracle
    machine: Machine
    torch: TorchModel
    globals: Scope
    depth: int
    left: int
    floor: int
    lazy: bool
    defaults: dict[ast.expr, Any]
    instances: list[Instance]
    active: list[FunctionInfo]
    home: Program
    root: FunctionInfo | None
    project: Project | None
    question: str
    turns: list[str]
    # What runs each kind of statement.
    statements: ClassVar[dict[type[ast.AST], Callable[..., Any]]]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Methods of the other parts."""

"""Follow one path through a program: statements and expressions over abstract values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from torchsan.check.following.calls import Calls
from torchsan.check.following.expressions import Expressions
from torchsan.check.following.machine import Machine
from torchsan.check.following.oracle import Oracle
from torchsan.check.following.scope import Scope
from torchsan.check.following.statements import Statements
from torchsan.check.modelling.names import (
    RUN_QUESTIONS,
)
from torchsan.check.modelling.torch_model import TorchModel
from torchsan.check.modelling.values import (
    Instance,
    Layer,
    Mapping,
    Plain,
    Sequence,
    Tensor,
)
from torchsan.check.reading.program import FunctionInfo, Program

ROUNDS, ROUNDS_ALONE = 3, 2
BUDGET = 40_000
BUDGET_ALONE = 500


class Interpreter(Statements, Expressions, Calls):
    """One path: `oracle` answers what the source does not decide."""

    def __init__(self, program: Program, oracle: Oracle) -> None:
        self.program = program
        self.oracle = oracle
        self.machine = Machine(program)
        self.torch = TorchModel(self.machine, self)
        self.globals = Scope(None)
        self.left = BUDGET
        self.depth = 0
        # Functions on their own need few of an object's attributes; whole programs run as they are.
        self.lazy = False
        self.defaults: dict[ast.expr, Any] = {}
        self.instances: list[Instance] = []
        self.active: list[FunctionInfo] = []

    @property
    def rounds(self) -> int:
        """How often a loop of unknown length is followed: what one round leaves behind shows in the next."""
        return ROUNDS_ALONE if self.lazy else ROUNDS

    def forget(self) -> None:
        """Take apart what refers to itself, so that memory is freed without the garbage collector."""
        for instance in self.instances:
            instance.attributes.clear()
            instance.start = None
        self.instances.clear()
        self.globals.names.clear()
        self.torch.interpreter = None

    def value(self, node: ast.expr, scope: Scope) -> Any:
        handler = EXPRESSIONS.get(type(node))
        return Plain() if handler is None else handler(self, node, scope)

    def condition(self, test: ast.expr, scope: Scope) -> bool:
        question = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
        name = self.program.dotted(question.func) if isinstance(question, ast.Call) else ""
        if name in RUN_QUESTIONS:
            return RUN_QUESTIONS[name] != (question is not test)
        value = self.value(test, scope)
        if isinstance(value, Plain) and value.known:
            return bool(value.value)
        return self.oracle.decide(self.program.words(test))

    def spread(self, value: Any, node: ast.AST) -> list[Any]:
        """The items of `*value`: all of them, since the order of layers hangs on it."""
        if isinstance(value, Sequence) and value.make is None:
            return list(value.items)
        return list(value.children) if isinstance(value, Layer) else self.iterate(value, node)

    def iterate(self, value: Any, node: ast.AST) -> list[Any]:
        if isinstance(value, Sequence):
            if value.make is not None:
                return value.take(self.rounds)
            return list(value.items[:6])
        if isinstance(value, Layer):
            return value.children[:6]
        if isinstance(value, Mapping):
            return [Plain(k, True) if isinstance(k, str | int) else Plain() for k in value.items][:6]
        if isinstance(value, Tensor) and value.sure:
            place = node
            return [self.machine.view_of(value, place, "unbind", "several") for _ in range(self.rounds)]
        if isinstance(value, Plain):
            return [Plain() for _ in range(self.rounds)]
        return [self.derived(value) for _ in range(self.rounds)]


def _handlers(prefix: str) -> dict[type[ast.AST], Callable[..., Any]]:
    found = {n.removeprefix(prefix): getattr(Interpreter, n) for n in dir(Interpreter) if n.startswith(prefix)}
    return {
        kind: found[kind.__name__] for kind in vars(ast).values() if isinstance(kind, type) and kind.__name__ in found
    }


EXPRESSIONS = _handlers("value_")
Interpreter.statements = _handlers("run_")

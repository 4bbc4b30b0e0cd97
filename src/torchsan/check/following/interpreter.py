"""Follow one path through a program: statements and expressions over abstract values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from torchsan.check.following.calls import Calls
from torchsan.check.following.expressions import Expressions
from torchsan.check.following.machine import Machine
from torchsan.check.following.oracle import Oracle
from torchsan.check.following.parts import names_in
from torchsan.check.following.scope import Scope
from torchsan.check.following.statements import Statements
from torchsan.check.modelling.names import (
    RUN_QUESTIONS,
)
from torchsan.check.modelling.torch_model import TorchModel
from torchsan.check.modelling.values import (
    IN_TURN,
    Answers,
    Instance,
    Layer,
    Library,
    Mapping,
    Plain,
    Sequence,
    Tensor,
    truth,
)
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.check.reading.project import Project

ROUNDS, ROUNDS_ALONE = 3, 2
BUDGET = 10_000
BUDGET_ALONE = 500


class Interpreter(Statements, Expressions, Calls):
    """One path: `oracle` answers what the source does not decide."""

    def __init__(self, program: Program, oracle: Oracle, project: Project | None = None) -> None:
        self.project = project
        self.missing: set[str] = set()
        self.program = program
        self.oracle = oracle
        self.machine = Machine(program)
        self.torch = TorchModel(self.machine, self)
        self.globals = Scope(None)
        self.home = program
        # The top-level names of each file that is followed into.
        self.modules: dict[Program, Scope] = {program: self.globals}
        self.left = BUDGET
        # Where what is left ends for the call that is being followed.
        self.floor = 0
        self.depth = 0
        # Functions on their own need few of an object's attributes; whole programs run as they are.
        self.lazy = False
        self.defaults: dict[ast.expr, Any] = {}
        self.instances: list[Instance] = []
        self.active: list[FunctionInfo] = []
        # The condition that was asked last, if the source does not decide it.
        self.question = ""
        # Names that loops around this statement give a value to, from item to item.
        self.turns: list[str] = []
        # The function that is followed on its own.
        self.root: FunctionInfo | None = None

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
        for scope in self.modules.values():
            scope.names.clear()
        self.torch.interpreter = None

    def module_scope(self, program: Program) -> Scope:
        known = self.modules.get(program)
        if known is None:
            known = self.modules[program] = Scope(None)
            known.program = program
        return known

    def imported(self, dotted: str) -> Any:
        """A function or class of another file of the tree, by its dotted name; None for what is not there."""
        if self.project is None or dotted in self.missing:
            return None
        found = self.project.find(dotted)
        if found is None:
            self.missing.add(dotted)
            return None
        program, node = found
        name = getattr(node, "name", "") or dotted.rpartition(".")[2]
        made = self.find_global(name, self.module_scope(program))
        if isinstance(made, Library) and made.name != dotted:
            return self.imported(made.name) or made
        return made

    def value(self, node: ast.expr, scope: Scope) -> Any:
        handler = EXPRESSIONS.get(type(node))
        if self.program is not self.home:
            node.home = self.program  # type: ignore[attr-defined]
        return Plain() if handler is None else handler(self, node, scope)

    def condition(self, test: ast.expr, scope: Scope) -> bool:
        question = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
        name = self.program.dotted(question.func) if isinstance(question, ast.Call) else ""
        if name in RUN_QUESTIONS:
            return bool(RUN_QUESTIONS[name]) != (question is not test)
        value = self.value(test, scope)
        self.question = ""
        answer = truth(value)
        if answer is not None:
            return answer
        self.question = self.program.words(test)
        return self.oracle.decide(self.question)

    def answered(self, test: ast.expr, answer: bool) -> Answers:
        """The answer that the question just asked got, and whether it is asked again for other items of a loop."""
        told: Answers = ((self.question, answer),)
        again = self.turns and not set(self.turns).isdisjoint(names_in(test))
        return (*told, (IN_TURN + self.question, answer)) if again else told

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

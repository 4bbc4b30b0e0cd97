"""Follow statements and assignments."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torchsan.check.following.assignments import Assignments
from torchsan.check.following.machine import CallCutShort, PathEnded
from torchsan.check.following.oracle import bare, compares
from torchsan.check.following.parts import MOST_ITEMS, names_in
from torchsan.check.following.scope import Scope
from torchsan.check.modelling.names import (
    BINARY,
    GRAD_MODES,
    WITH_PARAMETERS,
)
from torchsan.check.modelling.values import (
    IN_TURN,
    ONCE,
    Class,
    Function,
    Instance,
    Layer,
    Library,
    Mapping,
    Plain,
    Sequence,
    Storage,
    Tensor,
    tensors_in,
    truth,
)

if TYPE_CHECKING:
    from torchsan.check.reading.program import FunctionInfo


@lru_cache(maxsize=4096)
def holds_write(node: ast.If) -> bool:
    """Whether something may be written in place, or given up, below an `if`."""
    for below in ast.walk(ast.Module([*node.body, *node.orelse], [])):
        if isinstance(below, ast.AugAssign | ast.Delete):
            return True
        if isinstance(below, ast.Assign) and any(isinstance(t, ast.Subscript) for t in below.targets):
            return True
        if isinstance(below, ast.Attribute) and below.attr.endswith("_"):
            return True
    return False


def complains(node: ast.If) -> bool | None:
    """The answer with which an `if` does not raise an error; None where that is up to nothing."""
    if _raises(node.body):
        return False
    return True if node.orelse and isinstance(node.orelse[-1], ast.Raise) else None


def returns(body: list[ast.stmt]) -> bool:
    """Whether a block leaves the function."""
    last = body[-1] if body else None
    return isinstance(last, ast.Return) or (isinstance(last, ast.If) and returns(last.body) and returns(last.orelse))


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Raise) or (isinstance(n, ast.If) and _raises(n.body)) for n in body)


@lru_cache(maxsize=4096)
def guards_itself(node: ast.If) -> bool:
    """Whether the body of an `if` changes what its test asks: `if not self.ready: …; self.ready = True` runs once."""
    asked = {ast.unparse(n) for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
    for statement in ast.walk(ast.Module(node.body, [])) if asked else ():
        changed: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            changed = statement.targets
        elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
            changed = [statement.target]
        elif isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute):
            changed = [statement.func.value] if statement.func.attr.endswith("_") else []
        if any(ast.unparse(part).removesuffix(".data") in asked for part in changed):
            return True
    return False


class Statements(Assignments):
    """The half of the interpreter that runs statements."""

    def run_block(self, body: list[ast.stmt], scope: Scope) -> str:
        """Run statements; "" when the end is reached, else why it was left: return, break, continue."""
        for statement in body:
            self.left -= 1
            if self.left < self.floor:
                if self.left < 0:
                    raise PathEnded
                raise CallCutShort
            if self.program is not self.home:
                statement.home = self.program  # type: ignore[attr-defined]
            handler = self.statements.get(type(statement))
            left = handler(self, statement, scope) if handler is not None else ""
            if left:
                return str(left)
        return ""

    def run_Expr(self, node: ast.Expr, scope: Scope) -> None:
        self.value(node.value, scope)
        if isinstance(node.value, ast.Call) and GRAD_MODES.get(self.program.dotted(node.value.func)) == "unsure":
            # `torch.set_grad_enabled(False)`: from here on.
            self.machine.switch(self.grad_mode(node.value, scope))

    def run_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope, node)
            if self.turns and isinstance(target, ast.Name):
                if isinstance(node.value, ast.Name):
                    self.note_kept_in_turn(target.id, node.value.id, value, scope)
                self.note_chosen(target.id, value, node, scope)

    def note_kept_in_turn(self, name: str, of: str, value: Any, scope: Scope) -> None:
        """`if i == 3: kept = x`: in the rounds to come x may be another tensor."""
        if isinstance(value, Tensor) and any(c.startswith(IN_TURN) for c, _ in self.machine.inside):
            scope.kept_in_turn[name] = (of, value)

    def note_chosen(self, name: str, value: Any, node: ast.Assign, scope: Scope) -> None:
        """`if loss < best: kept = w.detach()`: what is kept of some rounds only is meant to stay as it was."""
        if any(answer and compares(condition) for condition, answer in self.machine.inside):
            learnt = [t for t in tensors_in(value) if t.leaf or (t.base is not None and t.base.leaf)]
            if learnt:
                # Other paths may show more.
                self.machine.touched = True
                scope.chosen[name] = (value, learnt, self.machine.clock, node)

    def part_from(self, node: ast.For, scope: Scope) -> None:
        """After a loop, what one of its rounds has kept is not what the last one made under the name."""
        made = {n.id for t in ast.walk(node) if isinstance(t, ast.Assign) for n in t.targets if isinstance(n, ast.Name)}
        value: Tensor
        for name, (of, value) in list(scope.kept_in_turn.items()):
            if of in made:
                del scope.kept_in_turn[name]
                if scope.names.get(name) is value:
                    memory = Storage("unknown", grad=value.storage.grad)
                    scope.names[name] = replace(value, storage=memory)

    def run_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, scope), scope, node)

    def run_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        current = self.value(node.target, scope)
        value = self.value(node.value, scope)
        if isinstance(current, Tensor) and isinstance(value, Tensor) and value.op == "numpy":
            current.other = True
        if isinstance(current, Tensor) and self.becomes_tensor(current) and isinstance(value, Tensor) and value.sure:
            current.sure = True
        if isinstance(current, Tensor) and current.sure:
            self.augment(current, value, node, scope)
            return
        if isinstance(current, Sequence) and isinstance(value, Sequence) and isinstance(node.op, ast.Add):
            current.items += value.items
            return
        if isinstance(current, Layer) and current.name == "ModuleList" and isinstance(value, Sequence):
            current.children += value.items[:MOST_ITEMS]
            return
        self.assign(node.target, self.binary(node.op, current, value, node), scope, node)

    def becomes_tensor(self, current: Tensor) -> bool:
        """Whether what a tensor is added to was one before: an argument of a plain function may be a number."""
        given = current.storage.kind == "argument" and self.root is not None and self.root.owner is None
        return current.likely and not given

    def augment(self, current: Tensor, value: Any, node: ast.AugAssign, scope: Scope) -> None:
        name = BINARY.get(type(node.op), "add") + "_"
        target = node.target
        if isinstance(node.target, ast.Subscript):
            # x[i] += y writes to x, whether x[i] was a view or a copy.
            owner = self.value(node.target.value, scope)
            if isinstance(owner, Tensor):
                self.machine.write(owner, node, name, node.target.value, values=tensors_in(value), by_index=True)
                return
        self.torch.op(f"Tensor.{name}", [current, value], {}, node, [target, node.value])

    def run_Return(self, node: ast.Return, scope: Scope) -> str:
        scope.returned = self.value(node.value, scope) if node.value is not None else Plain(None, True)
        if self.machine.mode == "no_grad" and scope.function is not None and self.is_loss(scope.function.info):
            self.machine.facts.append(self.machine.tell.loss_without_graph(node))
        return "return"

    def is_loss(self, info: FunctionInfo) -> bool:
        """Whether a function computes the loss of a class that is one, and switches gradients off by itself."""
        if info is not self.root or info.owner is None or info.name not in ("forward", "__call__"):
            return False
        return "loss" in info.owner.name.lower() and not any("grad" in d for d in info.decorators)

    def run_Break(self, node: ast.Break, scope: Scope) -> str:
        return "break"

    def run_Continue(self, node: ast.Continue, scope: Scope) -> str:
        return "continue"

    def run_Raise(self, node: ast.Raise, scope: Scope) -> str:
        raise PathEnded

    def run_Delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                scope.names.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                owner = self.value(target.value, scope)
                if isinstance(owner, Instance):
                    owner.attributes.pop(target.attr, None)
            elif isinstance(target, ast.Subscript):
                # Whatever of a list is deleted, what is left is not known: say that nothing is.
                owner = self.value(target.value, scope)
                if isinstance(owner, Sequence):
                    owner.empty()
                elif isinstance(owner, Mapping):
                    key = self.value(target.slice, scope)
                    if isinstance(key, Plain) and key.known:
                        owner.items.pop(key.value, None)
                    else:
                        owner.items.clear()

    def run_If(self, node: ast.If, scope: Scope) -> str:
        answer = self.condition(node.test, scope)
        wanted = complains(node) if self.question else None
        if wanted is not None:
            # A path that ends in an error shows nothing more.
            answer, self.question, self.machine.guarded = wanted, "", True
        question, before = self.question, self.machine.inside
        if question:
            if holds_write(node) or (self.turns and compares(question)):
                self.oracle.interesting.setdefault(bare(question))
            self.machine.inside = (*before, *self.answered(node.test, answer))
            if answer and guards_itself(node):
                self.machine.inside += ((ONCE, True),)
            if answer:
                self.narrow(node.test, scope)
        try:
            left = self.run_block(node.body if answer else node.orelse, scope)
        finally:
            self.machine.inside = before
        if question and not left and returns(node.orelse if answer else node.body):
            # What comes after it hangs on the answer, too.
            self.machine.inside = (*before, *({(question, answer)} - set(before)))
        return left

    def narrow(self, test: ast.expr, scope: Scope) -> None:
        """What `isinstance` has just told of a value of which nothing was known."""
        if isinstance(test, ast.BoolOp):
            for part in test.values if isinstance(test.op, ast.And) else test.values[:1]:
                self.narrow(part, scope)
            return
        if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Name) or len(test.args) != 2:
            return
        name, kind = test.args
        if test.func.id != "isinstance" or not isinstance(name, ast.Name):
            return
        known = scope.find(name.id)
        if not isinstance(known, Tensor) or known.sure:
            return
        kind = kind.elts[0] if isinstance(kind, ast.Tuple) and kind.elts else kind
        dotted = self.program.dotted(kind)
        space, _, last = dotted.rpartition(".")
        if last == "Tensor" and space in ("torch", ""):
            known.sure = True
        elif space == "torch.nn" and last in WITH_PARAMETERS:
            scope.names[name.id] = self.torch.construct(last, [], {}, test)

    def run_For(self, node: ast.For, scope: Scope) -> str:
        left = self.run_rounds(node, scope)
        return self.run_block(node.orelse, scope) if not left else "" if left == "break" else left

    def run_rounds(self, node: ast.For, scope: Scope) -> str:
        """Each item in its turn; how the loop was left, if it was."""
        items = self.iterate(self.value(node.iter, scope), node.iter)
        outer = len(self.turns)
        self.turns += names_in(node.target)
        try:
            for item in items:
                self.assign(node.target, item, scope, node)
                left = self.run_block(node.body, scope)
                if left in ("break", "return"):
                    return left
        finally:
            del self.turns[outer:]
        if scope.kept_in_turn:
            self.part_from(node, scope)
        return ""

    run_AsyncFor = run_For

    def run_While(self, node: ast.While, scope: Scope) -> str:
        for _ in range(self.rounds):
            self.value(node.test, scope)
            left = self.run_block(node.body, scope)
            if left == "break":
                return ""
            if left == "return":
                return left
        return ""

    def run_With(self, node: ast.With, scope: Scope) -> str:
        previous = self.machine.mode
        for item in node.items:
            entered = self.value(item.context_expr, scope)
            mode = self.grad_mode(item.context_expr, scope)
            if mode:
                self.machine.switch(mode)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, entered, scope, node)
        try:
            return self.run_block(node.body, scope)
        finally:
            self.machine.mode = previous

    run_AsyncWith = run_With

    def grad_mode(self, node: ast.expr, scope: Scope) -> str:
        call = node.func if isinstance(node, ast.Call) else node
        name = self.program.dotted(call)
        mode = GRAD_MODES.get(name, "")
        if isinstance(node, ast.Call) and mode in ("unsure", "inference") and node.args:
            answer = truth(self.value(node.args[0], scope))
            if mode == "unsure":
                return {True: "grad", False: "no_grad", None: "unsure"}[answer]
            return {True: "inference", False: "", None: "unsure"}[answer]
        if not mode and not name.startswith(("torch.autocast", "torch.amp", "torch.cuda.amp")):
            switches = ("no_grad", "grad_enabled", "inference", "no_sync", "context", "ctx")
            if isinstance(node, ast.IfExp) or any(s in name.lower() for s in switches):
                return "unsure" if self.machine.mode == "grad" and "no_sync" not in name else ""
        return mode

    def run_Try(self, node: ast.Try, scope: Scope) -> str:
        left = self.run_block(node.body, scope) or self.run_block(node.orelse, scope)
        return self.run_block(node.finalbody, scope) or left

    run_TryStar = run_Try

    def run_Match(self, node: ast.Match, scope: Scope) -> str:
        self.value(node.subject, scope)
        for case in node.cases:
            if self.oracle.decide(f"{self.program.words(node.subject)} is {ast.unparse(case.pattern)}"):
                return self.run_block(case.body, scope)
        return ""

    def run_FunctionDef(self, node: ast.FunctionDef, scope: Scope) -> None:
        scope.names[node.name] = Function(self.program.function(node), scope)

    run_AsyncFunctionDef = run_FunctionDef

    def run_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.names[node.name] = Class(self.program.class_info(node), scope)

    def run_Import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            scope.names[alias.asname or alias.name.partition(".")[0]] = Library(
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def run_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            module = self.program.module_of(node)
            scope.names[alias.asname or alias.name] = Library(f"{module}.{alias.name}")

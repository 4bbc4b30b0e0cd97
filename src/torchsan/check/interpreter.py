"""Follow one path through a program: statements and expressions over abstract values."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

from torchsan.check.calls import Calls
from torchsan.check.machine import Machine, PathEnded
from torchsan.check.oracle import Oracle
from torchsan.check.program import FunctionInfo, Program
from torchsan.check.torch_model import TorchModel, truth
from torchsan.check.torch_names import BINARY, GRAD_MODES, PLAIN_ATTRIBUTES, RUN_QUESTIONS, TENSOR_ONLY
from torchsan.check.values import (
    Class,
    Function,
    Grad,
    Instance,
    Layer,
    Library,
    Mapping,
    Method,
    Optimizer,
    Plain,
    Sequence,
    Snapshot,
    Storage,
    Tensor,
    tensors_in,
)

ROUNDS, ROUNDS_ALONE = 3, 2
BUDGET = 40_000
BUDGET_ALONE = 500
BUILTINS = frozenset(dir(builtins))
TRUE, FALSE = Plain(True, True), Plain(False, True)

_FOLD: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Scope:
    """Names of one call (or of the module), with the scope around it."""

    __slots__ = ("function", "names", "outer", "overwritten", "returned", "yielded")

    def __init__(self, outer: Scope | None, function: Any = None) -> None:
        self.names: dict[str, Any] = {}
        self.outer = outer
        self.function = function
        self.returned: Any = Plain(None, True)
        self.yielded: list[Any] = []
        # Names whose tensor a call has overwritten: name to tensor, write, call.
        self.overwritten: dict[str, tuple[Any, Any, ast.Call]] = {}

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


class Interpreter(Calls):
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

    # --- statements ---------------------------------------------------------------------------------

    def run_block(self, body: list[ast.stmt], scope: Scope) -> str:
        """Run statements; "" when the end is reached, else why it was left: return, break, continue."""
        for statement in body:
            self.left -= 1
            if self.left < 0:
                raise PathEnded
            handler = STATEMENTS.get(type(statement))
            left = handler(self, statement, scope) if handler is not None else ""
            if left:
                return str(left)
        return ""

    def run_Expr(self, node: ast.Expr, scope: Scope) -> None:
        self.value(node.value, scope)

    def run_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope, node)

    def run_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, scope), scope, node)

    def run_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        current = self.value(node.target, scope)
        value = self.value(node.value, scope)
        if isinstance(current, Tensor) and current.sure:
            self.augment(current, value, node, scope)
            return
        if isinstance(current, Sequence) and isinstance(value, Sequence) and isinstance(node.op, ast.Add):
            current.items += value.items
            return
        self.assign(node.target, self.binary(node.op, current, value, node), scope, node)

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
        return "return"

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

    def run_If(self, node: ast.If, scope: Scope) -> str:
        return self.run_block(node.body if self.condition(node.test, scope) else node.orelse, scope)

    def run_For(self, node: ast.For, scope: Scope) -> str:
        for item in self.iterate(self.value(node.iter, scope), node.iter):
            self.assign(node.target, item, scope, node)
            left = self.run_block(node.body, scope)
            if left == "break":
                return ""
            if left == "return":
                return left
        return self.run_block(node.orelse, scope)

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
                self.machine.mode = mode
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
            module = node.module or ""
            scope.names[alias.asname or alias.name] = Library(f"{'.' * node.level}{module}.{alias.name}")

    # --- assignment ---------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Any, scope: Scope, node: ast.AST) -> None:
        if isinstance(value, Layer | Instance) and isinstance(target, ast.Name | ast.Attribute):
            value.called.append((target, node))
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self.unpack(target.elts, value, scope, node)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(target, value, scope, node)
        elif isinstance(target, ast.Subscript):
            self.set_item(target, value, scope, node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.machine.unknown(tensors_in(value)), scope, node)

    def unpack(self, targets: list[ast.expr], value: Any, scope: Scope, node: ast.AST) -> None:
        items: list[Any] = []
        if isinstance(value, Sequence):
            items = value.take(len(targets))
        elif isinstance(value, Tensor) and value.sure:
            items = [self.machine.view_of(value, node, "unbind", "several") for _ in targets]
        elif isinstance(value, Layer):
            items = value.children
        starred = any(isinstance(t, ast.Starred) for t in targets)
        for index, target in enumerate(targets):
            known = index < len(items) and not starred
            self.assign(target, items[index] if known else self.derived(value), scope, node)

    def derived(self, value: Any) -> Any:
        """Something out of a value that is not known in detail."""
        if isinstance(value, Plain):
            return Plain()
        return self.machine.unknown(tensors_in(value), getattr(value, "place", None))

    def set_attribute(self, target: ast.Attribute, value: Any, scope: Scope, node: ast.AST) -> None:
        owner = self.value(target.value, scope)
        if isinstance(owner, Instance):
            current = owner.attributes.get(target.attr)
            if owner.module and isinstance(current, Tensor) and current.storage.kind == "parameter":
                plain = isinstance(value, Tensor) and value.sure and value.storage.kind != "parameter"
                if plain and not value.view:
                    self.machine.refuse("parameter-replaced", current, node, "=", target)
            owner.attributes[target.attr] = value
        elif isinstance(owner, Layer):
            if isinstance(value, Tensor):
                owner.parameters[target.attr] = value
        elif isinstance(owner, Tensor):
            if target.attr == "requires_grad":
                self.torch.set_requires_grad(owner, value)
            elif target.attr == "data" and owner.sure:
                behind = self.torch.method_data(owner, node)
                module = self.forward_of(scope)
                # `w.data = w.data * mask` projects what was learnt, it does not replace it.
                projects = isinstance(node, ast.Assign) and ast.unparse(target.value) in ast.unparse(node.value)
                if owner.storage.kind == "parameter" and module and not projects:
                    self.machine.facts.append(self.machine.tell.rewritten(owner, node, target.value, module))
                self.machine.write(behind, node, ".data =", target.value)

    def forward_of(self, scope: Scope) -> str:
        """The class whose `forward` this is; empty elsewhere."""
        info = scope.function.info if scope.function is not None else None
        return info.owner.name if info is not None and info.owner is not None and info.name == "forward" else ""

    def set_item(self, target: ast.Subscript, value: Any, scope: Scope, node: ast.AST) -> None:
        owner = self.value(target.value, scope)
        self.value(target.slice, scope)
        if isinstance(owner, Tensor) and owner.sure:
            self.machine.write(owner, node, "[…] =", target.value, values=tensors_in(value), by_index=True)
        elif isinstance(owner, Mapping):
            key = self.value(target.slice, scope)
            if isinstance(key, Plain) and key.known and isinstance(key.value, str | int):
                owner.items[key.value] = value
        elif isinstance(owner, Sequence) and isinstance(target.slice, ast.Slice):
            owner.empty()
            owner.items = list(value.items) if isinstance(value, Sequence) else []
        elif isinstance(owner, Sequence):
            key = self.value(target.slice, scope)
            if isinstance(key, Plain) and key.known and isinstance(key.value, int) and owner.make is None:
                if -len(owner.items) <= key.value < len(owner.items):
                    owner.items[key.value] = value
            elif owner.items:
                owner.items[-1] = value

    # --- expressions --------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope) -> Any:
        handler = EXPRESSIONS.get(type(node))
        return Plain() if handler is None else handler(self, node, scope)

    def value_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return Plain(node.value, True)

    def value_Name(self, node: ast.Name, scope: Scope) -> Any:
        found = scope.find(node.id)
        if found is not None:
            if scope.overwritten and node.id in scope.overwritten:
                self.read_overwritten(node, found, scope)
            return found
        if node.id == "__name__":
            return Plain("__main__", True)
        if self.lazy:
            found = self.find_global(node.id)
            if found is not None:
                return found
        imported = self.program.imports.get(node.id)
        if imported is None and node.id not in BUILTINS:
            return self.machine.unknown()
        return Library(imported or node.id)

    def find_global(self, name: str) -> Any:
        """A function, class or constant of the file that has not been run."""
        known = self.globals.names.get(name)
        node = self.program.top_level.get(name)
        if known is None and node is not None:
            self.run_block([node], self.globals)
            known = self.globals.names.get(name)
        return known

    def read_overwritten(self, node: ast.Name, value: Any, scope: Scope) -> None:
        """The caller reads again what its callee wrote."""
        tensor, write, call = scope.overwritten.pop(node.id)
        if value is tensor:
            tell = self.machine.tell
            self.machine.facts.append(tell.input_overwritten(node.id, write, call, node, call.func))

    def value_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self.attribute(self.value(node.value, scope), node.attr, node)

    def attribute(self, owner: Any, name: str, node: ast.AST) -> Any:
        if isinstance(owner, Library):
            return Library(f"{owner.name}.{name}")
        if isinstance(owner, Instance):
            return self.instance_attribute(owner, name, node)
        if isinstance(owner, Class):
            method = self.find_method(owner, name)
            if method is not None:
                return method
            return Method(owner, name, node)
        if isinstance(owner, Layer):
            if name in owner.parameters:
                return owner.parameters[name]
            if name in owner.names:
                return owner.children[owner.names.index(name)]
            return TRUE if name == "training" else Method(owner, name, node)
        if isinstance(owner, Tensor):
            return self.tensor_attribute(owner, name, node)
        if isinstance(owner, Method) and owner.name == "super":
            return Method(owner, name, node)
        if isinstance(owner, Sequence) and name in owner.fields:
            return owner.take(owner.fields.index(name) + 1)[-1]
        if isinstance(owner, Sequence | Mapping | Optimizer | Snapshot | Plain):
            return Method(owner, name, node)
        return self.machine.unknown()

    def tensor_attribute(self, tensor: Tensor, name: str, node: ast.AST) -> Any:
        if name in TENSOR_ONLY:
            tensor.sure = True
        if name == "data":
            return self.torch.method_data(tensor, node)
        if name in PLAIN_ATTRIBUTES:
            return Plain()
        if name == "grad":
            if self.machine.backwards and not tensor.keeps_grad and self.never_leaf(tensor):
                self.machine.facts.append(self.machine.tell.not_a_leaf(node))
            # It has a graph of its own when backward was called with create_graph.
            return Tensor(Storage("unknown"), Grad.MAYBE, place=node, op="grad")
        if name in ("T", "mT", "H", "mH") and tensor.sure:
            return self.machine.view_of(tensor, node, name)
        if name == "training":
            return TRUE
        return Method(tensor, name, node)

    def never_leaf(self, tensor: Tensor) -> bool:
        """Whether it is surely the result of an op, so that backward leaves no gradient there."""
        made = tensor.node is not None and bool(tensor.op) and not tensor.view
        return made and tensor.sure and not tensor.leaf and tensor.wants_grad == Grad.YES and not tensor.detached

    def value_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Any:
        items: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                items += self.spread(self.value(item.value, scope), item.value)
            else:
                items.append(self.value(item, scope))
        return Sequence(items)

    value_List = value_Tuple
    value_Set = value_Tuple

    def value_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        made = Mapping()
        for index, (key, item) in enumerate(zip(node.keys, node.values, strict=True)):
            value = self.value(item, scope)
            known = key is not None and self.value(key, scope)
            is_key = isinstance(known, Plain) and known.known and isinstance(known.value, str | int)
            made.items[known.value if is_key and isinstance(known, Plain) else ("?", index)] = value
        return made

    def value_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        return self.binary(node.op, left, right, node)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        if isinstance(left, Plain) and isinstance(right, Plain):
            return self.fold(_FOLD.get(type(op)), left, right)
        if isinstance(left, Sequence) and isinstance(right, Sequence) and isinstance(op, ast.Add):
            return Sequence(left.items + right.items)
        if isinstance(left, Sequence):
            return left
        tensors = [v for v in (left, right) if isinstance(v, Tensor)]
        if not tensors:
            return self.machine.unknown()
        name = BINARY.get(type(op), "add")
        texts = [getattr(node, "left", node), getattr(node, "right", node)]
        if not any(t.sure for t in tensors):
            made = self.torch.op(name, [left, right], {}, node, texts)
            for t in tensors:
                t.sure = False
            if isinstance(made, Tensor):
                made.sure = False
            return made
        if name == "sub" and left is right and isinstance(left, Tensor):
            self.same_twice(left, node, texts)
        was = [t.sure for t in tensors]
        made = self.torch.op(name, [left, right], {}, node, texts)
        for tensor, before in zip(tensors, was, strict=True):
            tensor.sure = before
        return made

    def same_twice(self, tensor: Tensor, node: ast.AST, texts: list[ast.AST]) -> None:
        """`w - w_old` where both are one parameter, stepped since: the copy that was meant is no copy."""
        step = next((w for w in tensor.storage.writes if w.how == "step"), None)
        if step is not None and ast.dump(texts[0]) != ast.dump(texts[1]):
            self.machine.facts.append(self.machine.tell.difference(step, node, texts[0], texts[1]))

    def fold(self, fold: Callable[[Any, Any], Any] | None, left: Plain, right: Plain) -> Plain:
        if fold is None or not (left.known and right.known):
            return Plain()
        if not all(isinstance(v.value, int | float | str | bool | None) for v in (left, right)):
            return Plain()
        try:
            result = fold(left.value, right.value)
        except (TypeError, ValueError, ArithmeticError):
            return Plain()
        return Plain(result, True) if len(str(result)) < 200 else Plain()

    def value_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            answer = truth(value)
            return Plain() if answer is None else Plain(not answer, True)
        if isinstance(value, Plain):
            if value.known and isinstance(node.op, ast.USub) and isinstance(value.value, int | float):
                return Plain(-value.value, True)
            return Plain()
        if isinstance(value, Tensor):
            name = "neg" if isinstance(node.op, ast.USub) else "bitwise_not"
            was = value.sure
            made = self.torch.op(name, [value], {}, node, [node.operand])
            value.sure = was
            if isinstance(made, Tensor) and not was:
                made.sure = False
            return made
        return self.machine.unknown()

    def value_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        if (
            isinstance(node.ops[0], ast.Is | ast.IsNot)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "grad"
        ):
            # Asking whether there is a gradient is no mistake.
            return Plain()
        left = self.value(node.left, scope)
        rights = [self.value(c, scope) for c in node.comparators]
        right = rights[0]
        if len(rights) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            return self.identity(left, right, isinstance(node.ops[0], ast.Is))
        if len(rights) == 1 and isinstance(left, Plain) and isinstance(right, Plain):
            return self.fold(_FOLD.get(type(node.ops[0])), left, right)
        tensors = [v for v in (left, right) if isinstance(v, Tensor)]
        if any(t.sure for t in tensors) and not isinstance(node.ops[0], ast.In | ast.NotIn):
            return self.machine.fresh(node, "compare")
        return self.machine.unknown() if tensors else Plain()

    def identity(self, left: Any, right: Any, same: bool) -> Plain:
        if isinstance(right, Plain) and right.known and right.value is None:
            if isinstance(left, Plain) and left.known:
                return Plain((left.value is None) == same, True)
            surely = isinstance(left, Layer | Instance | Sequence | Mapping | Function) or (
                isinstance(left, Tensor) and left.sure and left.storage.kind != "argument"
            )
            if surely:
                return Plain(not same, True)
        return Plain()

    def value_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        stop = isinstance(node.op, ast.Or)
        undecided = False
        value: Any = Plain()
        for item in node.values:
            value = self.value(item, scope)
            answer = truth(value)
            if answer is stop:
                return value if not undecided else Plain(stop, True)
            undecided = undecided or answer is None
        return Plain() if undecided else value

    def value_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.value(node.body if self.condition(node.test, scope) else node.orelse, scope)

    def value_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.value(node.value, scope)
        self.assign(node.target, value, scope, node)
        return value

    def value_Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return Function(self.program.function(node), scope)

    def value_Await(self, node: ast.Await, scope: Scope) -> Any:
        return self.value(node.value, scope)

    def value_Yield(self, node: ast.Yield, scope: Scope) -> Any:
        scope.yielded.append(self.value(node.value, scope) if node.value else Plain(None, True))
        return self.machine.unknown()

    def value_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        return Plain()

    def value_Slice(self, node: ast.Slice, scope: Scope) -> Any:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.value(part, scope)
        return Plain()

    def value_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        inner = Scope(scope, scope.function)
        return Sequence(self.comprehend(node.generators, inner, lambda: self.value(node.elt, inner)))

    value_GeneratorExp = value_ListComp
    value_SetComp = value_ListComp

    def value_DictComp(self, node: ast.DictComp, scope: Scope) -> Any:
        inner = Scope(scope, scope.function)
        values = self.comprehend(node.generators, inner, lambda: self.value(node.value, inner))
        return Mapping({("?", i): v for i, v in enumerate(values)})

    def comprehend(self, generators: list[ast.comprehension], scope: Scope, make: Callable[[], Any]) -> list[Any]:
        if not generators:
            return [make()]
        first, found = generators[0], []
        for item in self.iterate(self.value(first.iter, scope), first.iter):
            self.assign(first.target, item, scope, first.target)
            if all(truth(self.value(test, scope)) is not False for test in first.ifs):
                found += self.comprehend(generators[1:], scope, make)
        return found

    def value_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        index = self.value(node.slice, scope)
        if isinstance(owner, Tensor):
            return self.indexed(owner, index, node)
        if isinstance(owner, Sequence | Layer):
            return self.item_of(owner, index, node)
        if isinstance(owner, Mapping) and isinstance(index, Plain) and index.known:
            found = owner.items.get(index.value) if isinstance(index.value, str | int) else None
            return found if found is not None else self.machine.unknown()
        return Plain() if isinstance(owner, Plain) else self.machine.unknown()

    def item_of(self, owner: Sequence | Layer, index: Any, node: ast.Subscript) -> Any:
        items = owner.items if isinstance(owner, Sequence) else owner.children
        if isinstance(node.slice, ast.Slice):
            return self.slice_of(owner, items, node.slice)
        if isinstance(index, Plain) and index.known and isinstance(index.value, int):
            if isinstance(owner, Sequence):
                items = owner.take(index.value + 1) if index.value >= 0 else items
            if -len(items) <= index.value < len(items):
                return items[index.value]
        if items and not (isinstance(index, Plain) and index.known):
            return items[-1]
        return self.derived(owner)

    def slice_of(self, owner: Sequence | Layer, items: list[Any], part: ast.Slice) -> Any:
        bounds: list[Any] = [b.value if isinstance(b, ast.Constant) else b for b in (part.lower, part.upper, part.step)]
        if not isinstance(owner, Sequence) or owner.make is not None or any(isinstance(b, ast.AST) for b in bounds):
            return self.derived(owner)
        return Sequence(items[slice(*bounds)])

    def indexed(self, tensor: Tensor, index: Any, node: ast.Subscript) -> Any:
        """`x[i]`: a view for numbers and slices, a copy for tensors and lists, else not known."""
        place = node
        if not tensor.sure:
            return self.machine.unknown([tensor], place)
        parts = index.items if isinstance(index, Sequence) and isinstance(node.slice, ast.Tuple) else [index]
        if all(isinstance(part, Plain) for part in parts):
            return self.machine.view_of(tensor, place, "[…]")
        made = self.machine.fresh(place, "[…]", grad=tensor.wants_grad)
        if tensor.nodes() and self.machine.mode in ("grad", "unsure"):
            made.node = self.machine.unknown([tensor], place).node
        if self.machine.mode != "grad":
            made.grad = min(made.grad, Grad.MAYBE if self.machine.mode == "unsure" else Grad.NO)
        return made

    # --- conditions and loops -----------------------------------------------------------------------

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
    found = {n.removeprefix(prefix): f for n, f in {**vars(Calls), **vars(Interpreter)}.items()}
    return {
        kind: found[kind.__name__] for kind in vars(ast).values() if isinstance(kind, type) and kind.__name__ in found
    }


STATEMENTS = _handlers("run_")
EXPRESSIONS = _handlers("value_")

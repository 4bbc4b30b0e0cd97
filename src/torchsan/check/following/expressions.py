"""Work out expressions over abstract values."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

from torchsan.check.following.items import Items
from torchsan.check.following.scope import Scope
from torchsan.check.modelling.counting import compared, moved
from torchsan.check.modelling.names import (
    ARRAY_ATTRIBUTES,
    BINARY,
    PLAIN_ATTRIBUTES,
    TENSOR_ONLY,
    tensor_methods,
)
from torchsan.check.modelling.values import (
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
    truth,
)

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


def computes_with(function: ast.AST, name: ast.Name) -> bool:
    """Whether a name is an operand where it stands, or joined to others, rather than handed on."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and name in node.value.elts:
            # `a, b = b, c(a)` gives it another name.
            return False
        joins = isinstance(node, ast.BinOp | ast.AugAssign | ast.List | ast.Tuple | ast.Subscript)
        if joins and any(child is name for child in ast.iter_child_nodes(node)):
            return True
    return False


class Expressions(Items):
    """The half of the interpreter that works out values."""

    def value_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return Plain(node.value, True)

    def value_Name(self, node: ast.Name, scope: Scope) -> Any:
        found = scope.find(node.id)
        if found is not None:
            if scope.overwritten and node.id in scope.overwritten:
                self.read_overwritten(node, found, scope)
            if scope.chosen and node.id in scope.chosen:
                self.read_chosen(node, found, scope)
            return found
        if node.id == "__name__":
            return Plain("__main__", True)
        if self.lazy or self.program is not self.home:
            found = self.find_global(node.id)
            if found is not None:
                return found
        imported = self.program.imports.get(node.id)
        if imported is None and node.id not in BUILTINS:
            return self.machine.unknown()
        return Library(imported or node.id)

    def find_global(self, name: str, scope: Scope | None = None) -> Any:
        """A function, class or constant of the file that has not been run; of the file that a scope belongs to."""
        module = self.modules[self.program] if scope is None else scope.module
        program = module.program or self.home
        known = module.names.get(name)
        node = program.definition(name) if known is None else None
        if node is not None:
            before, self.program = self.program, program
            try:
                self.run_block([node], module)
            finally:
                self.program = before
            known = module.names.get(name)
        return known

    def read_overwritten(self, node: ast.Name, value: Any, scope: Scope) -> None:
        """The caller reads again what its callee wrote."""
        tensor, write, call = scope.overwritten.pop(node.id)
        if value is tensor:
            # What another module makes of it is not known: it may begin with the same activation.
            certain = scope.function is None or computes_with(scope.function.info.node, node)
            tell = self.machine.tell
            fact = tell.input_overwritten(node.id, write, call, node, call.func, certain=certain)
            self.machine.facts.append(fact)

    def read_chosen(self, node: ast.Name, value: Any, scope: Scope) -> None:
        """What was kept as the best so far is read, and an optimizer has moved it since."""
        kept, leaves, time, place = scope.chosen[node.id]
        steps = [w for leaf in leaves for w in leaf.storage.writes if w.time > time and w.how == "step"]
        if value is kept and steps:
            del scope.chosen[node.id]
            self.machine.facts.append(self.machine.tell.chosen(node, place, steps[0]))

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

    def part_of(self, tensor: Tensor, name: str, node: ast.AST) -> Tensor | None:
        """An attribute that no tensor has, of an argument that is some other object: its memory is the caller's."""
        if tensor.sure or tensor.storage.kind != "argument" or not tensor.likely:
            return None
        if name in tensor_methods() or name in PLAIN_ATTRIBUTES:
            return None
        return Tensor(Storage("unknown", name), Grad.MAYBE, sure=False, likely=True, place=node)

    def tensor_attribute(self, tensor: Tensor, name: str, node: ast.AST) -> Any:
        if not tensor.sure and (name in TENSOR_ONLY or (tensor.likely and name in ARRAY_ATTRIBUTES)):
            tensor.sure = True
        if name == "data":
            return self.torch.method_data(tensor, node)
        if name == "requires_grad" and tensor.wants_grad == Grad.YES:
            return TRUE
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
        return self.part_of(tensor, name, node) or Method(tensor, name, node)

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
            return moved(op, left, right) or self.fold(_FOLD.get(type(op)), left, right)
        if isinstance(left, Sequence) and isinstance(right, Sequence) and isinstance(op, ast.Add):
            return Sequence(left.items + right.items)
        if isinstance(left, Sequence):
            # `[first] + sizes[:-1]`: how much follows, and what, is not known.
            more = isinstance(op, ast.Add) and left.make is None
            return Sequence(list(left.items), self.machine.unknown) if more else left
        tensors = [v for v in (left, right) if isinstance(v, Tensor)]
        if not tensors:
            return self.machine.unknown()
        if any(t.sure for t in tensors):
            for tensor in tensors:
                tensor.sure = tensor.sure or tensor.likely
        name = BINARY.get(type(op), "add")
        texts = [getattr(node, "left", node), getattr(node, "right", node)]
        if not any(t.sure for t in tensors):
            made = self.torch.op(name, [left, right], {}, node, texts)
            for t in tensors:
                t.sure = False
            if isinstance(made, Tensor):
                made.sure, made.likely = False, any(t.likely for t in tensors)
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
            counted = compared(node.ops[0], left, right)
            if counted is not None:
                return Plain(counted, True)
            return self.fold(_FOLD.get(type(node.ops[0])), left, right)
        if len(rights) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(left, Plain) and left.known:
            return self.membership(left.value, right, node)
        tensors = [v for v in (left, right) if isinstance(v, Tensor)]
        if any(t.sure for t in tensors) and not isinstance(node.ops[0], ast.In | ast.NotIn):
            return self.machine.fresh(node, "compare")
        return self.machine.unknown() if tensors else Plain()

    def membership(self, value: Any, within: Any, node: ast.Compare) -> Plain:
        """`"relu" in ("relu", "elu")`; of what is not there, only a list as it stands in the source tells that."""
        same = isinstance(node.ops[0], ast.In)
        if isinstance(within, Mapping):
            return Plain(same, True) if isinstance(value, str | int) and value in within.items else Plain()
        items = within.items if isinstance(within, Sequence) and within.make is None else []
        if any(isinstance(item, Plain) and item.known and item.value == value for item in items):
            return Plain(same, True)
        literal = isinstance(node.comparators[0], ast.Tuple | ast.List | ast.Set)
        whole = literal and all(isinstance(item, Plain) and item.known for item in items)
        return Plain(not same, True) if whole else Plain()

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
        answer = self.condition(node.test, scope)
        before = self.machine.inside
        if self.question:
            self.machine.inside = (*before, *self.answered(node.test, answer))
        try:
            return self.value(node.body if answer else node.orelse, scope)
        finally:
            self.machine.inside = before

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

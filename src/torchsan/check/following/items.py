"""Parts of values: comprehensions, items and slices."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from torchsan.check.following.parts import Parts, is_key, names_in
from torchsan.check.following.scope import Scope
from torchsan.check.modelling.values import Grad, Layer, Mapping, Plain, Sequence, Tensor, truth


class Items(Parts):
    """What is taken out of a value, or put together of others."""

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
        items, outer = self.iterate(self.value(first.iter, scope), first.iter), len(self.turns)
        self.turns += names_in(first.target)
        for item in items:
            self.assign(first.target, item, scope, first.target)
            if all(truth(self.value(test, scope)) is not False for test in first.ifs):
                found += self.comprehend(generators[1:], scope, make)
        del self.turns[outer:]
        return found

    def value_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        index = self.value(node.slice, scope)
        if isinstance(owner, Tensor) and is_key(node.slice):
            # `g.data["h"]`: no tensor has keys.
            return self.machine.unknown()
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
        if tensor.likely and isinstance(node.slice, ast.Tuple):
            tensor.sure = True
        if not tensor.sure:
            made = self.machine.unknown([tensor], place)
            made.likely = tensor.likely
            return made
        parts = index.items if isinstance(index, Sequence) and isinstance(node.slice, ast.Tuple) else [index]
        if all(isinstance(part, Plain) for part in parts):
            viewed = self.machine.view_of(tensor, place, "[…]")
            viewed.thin = any(part.known and part.value is None for part in parts)
            return viewed
        made = self.machine.fresh(place, "[…]", grad=tensor.wants_grad)
        if tensor.nodes() and self.machine.mode in ("grad", "unsure"):
            made.node = self.machine.unknown([tensor], place).node
        if self.machine.mode != "grad":
            made.grad = min(made.grad, Grad.MAYBE if self.machine.mode == "unsure" else Grad.NO)
        return made

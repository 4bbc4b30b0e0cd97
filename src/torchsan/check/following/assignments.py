"""What an assignment does: names, attributes, items, and several at once."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.following.parts import Parts, is_key
from torchsan.check.following.scope import Scope
from torchsan.check.modelling.names import FACTORIES
from torchsan.check.modelling.values import Instance, Layer, Mapping, Plain, Sequence, Tensor, tensors_in

# Ops whose result is one tensor for sure, and what has come from elsewhere.
_ONE_TENSOR = FACTORIES | {"", "stack", "cat", "chunk", "[…]"}


class Assignments(Parts):
    """Give values to targets."""

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
        elif isinstance(value, Tensor) and value.sure and (value.view or value.op in _ONE_TENSOR):
            # What else is unpacked returns several tensors: a pooling with its indices, say.
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
                # `self.bias = self.bias.to(x.device)` is the parameter itself where nothing has to be moved.
                if plain and not value.view and value.storage.probably is not current.storage:
                    self.machine.refuse("parameter-replaced", current, node, "=", target)
            owner.attributes[target.attr] = value
            self.machine.kept += tensors_in(value)
        elif isinstance(owner, Layer):
            if isinstance(value, Tensor):
                owner.parameters[target.attr] = value
        elif isinstance(owner, Tensor):
            if not owner.sure:
                self.machine.kept += tensors_in(value)
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
        if isinstance(owner, Tensor) and (is_key(target.slice) or owner.other):
            owner.sure, owner.likely, owner.other = False, False, True
            # The caller may go on from there.
            self.machine.kept += tensors_in(value)
            return
        if isinstance(owner, Tensor) and owner.likely and isinstance(target.slice, ast.Tuple):
            owner.sure = True
        if isinstance(owner, Tensor) and owner.sure:
            self.machine.write(owner, node, "[…] =", target.value, values=tensors_in(value), by_index=True)
        elif isinstance(owner, Tensor) and isinstance(target.slice, ast.Tuple | ast.Slice):
            self.machine.perhaps_written(owner, node, "[…] =", target.value)
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

"""Methods of values that the engine models itself: lists, snapshots, custom Functions, super()."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.following.parts import MOST_ITEMS, Parts
from torchsan.check.modelling.names import (
    only_tensors_have,
    tensor_methods,
)
from torchsan.check.modelling.values import (
    Class,
    Grad,
    Instance,
    Layer,
    Mapping,
    Method,
    Node,
    Optimizer,
    Plain,
    Save,
    Sequence,
    Snapshot,
    Tensor,
    tensors_in,
)

_OF_TEXT = ("lower", "upper", "strip")


class MethodCalls(Parts):
    """Calls of methods."""

    def call_method(self, method: Method, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        receiver, name = method.receiver, method.name
        if isinstance(receiver, Method) and receiver.name == "super":
            return self.call_super(receiver, name, args, kwargs, node)
        if isinstance(receiver, Tensor):
            if name in ("keys", "items", "get", "pop", "update", "append", "setdefault"):
                receiver.other = True
            if not receiver.sure:
                receiver.sure = name in only_tensors_have() or (receiver.likely and name in tensor_methods())
            return self.torch.call_method(receiver, name, args, kwargs, node)
        if isinstance(receiver, Optimizer):
            return self.torch.call_optimizer(receiver, name, args, node)
        if isinstance(receiver, Layer) or (isinstance(receiver, Instance) and receiver.module):
            return self.torch.call_module(receiver, name, args, kwargs, node)
        if isinstance(receiver, Instance) and name == "save_for_backward":
            receiver.attributes[" saved"] = Sequence(list(args))
            return Plain(None, True)
        if isinstance(receiver, Class) and name == "apply":
            return self.apply_function(receiver, args, node)
        if isinstance(receiver, Snapshot):
            return self.from_snapshot(receiver, name)
        if isinstance(receiver, Sequence | Mapping):
            return self.call_collection(receiver, name, args, node)
        if isinstance(receiver, Plain) and name not in ("apply",):
            text = receiver.value if receiver.known and isinstance(receiver.value, str) and not args else None
            return Plain(getattr(text, name)(), True) if text is not None and name in _OF_TEXT else Plain()
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node)

    def call_super(self, held: Method, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        instance = held.receiver
        owner = held.node.value if isinstance(held.node, ast.Constant) else ""
        if isinstance(instance, Instance):
            holder = self.find_in(instance.cls.scope, str(owner))
            method = self.find_method(holder, name, str(owner)) if isinstance(holder, Class) else None
            if method is not None:
                method.bound = instance
                return self.call_function(method, args, kwargs, node)
            if name == "__init__" and args and self.inherits(instance.cls, ("torch.optim.Optimizer",)):
                groups = Mapping({"params": Sequence(self.iterate(args[0], node))})
                instance.attributes["param_groups"] = Sequence([groups])
            layer = self.layer_of(instance, node) if name == "forward" else None
            if layer is not None:
                return self.torch.call_layer(layer, args, kwargs, node)
            if name not in ("__init__", "forward") and instance.module:
                return self.torch.call_module(instance, name, args, kwargs, node)
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node)

    def from_snapshot(self, snapshot: Snapshot, name: str) -> Any:
        # Its items are aliases, but what becomes of them is not followed.
        return snapshot if name == "copy" else self.machine.unknown()

    def call_collection(self, owner: Sequence | Mapping, name: str, args: list[Any], node: ast.AST) -> Any:
        if isinstance(owner, Sequence):
            if name in ("append", "add", "appendleft") and args:
                self.note_kept_twice(owner, args[0], node)
                if len(owner.items) < MOST_ITEMS:
                    owner.items.append(args[0])
            elif name == "extend" and args and isinstance(args[0], Sequence):
                owner.items += args[0].items[:6]
            elif name == "insert" and len(args) > 1:
                owner.items.insert(0, args[1])
            elif name in ("pop", "popleft") and owner.items:
                return owner.items[-1]
            elif name == "copy":
                return Sequence(list(owner.items))
            elif name == "clear":
                owner.empty()
            return Plain()
        if name == "values":
            return Sequence(list(owner.items.values()))
        if name == "items":
            return Sequence(
                [Sequence([Plain(k, True) if isinstance(k, str | int) else Plain(), v]) for k, v in owner.items.items()]
            )
        if name in ("get", "pop", "setdefault") and args and isinstance(args[0], Plain):
            found = owner.items.get(args[0].value) if args[0].known else None
            return found if found is not None else self.machine.unknown()
        return Plain() if name in ("keys", "clear") else self.machine.unknown()

    def note_kept_twice(self, owner: Sequence, value: Any, node: ast.AST) -> None:
        """The same tensor appended again after a write: the entry before has changed with it."""
        if not isinstance(value, Tensor) or not value.sure or not isinstance(node, ast.Call):
            return
        if not node.args or not isinstance(node.args[0], ast.Name | ast.Attribute):
            return
        before = next((time for item, time in owner.kept if item is value), None)
        owner.kept.append((value, self.machine.clock))
        write = value.storage.written_after(before) if before is not None else None
        if write is not None and write.how == "op" and isinstance(node.func, ast.Attribute):
            tell = self.machine.tell
            name, held = tell.words(node.args[0]), tell.words(node.func.value)
            if name and held:
                self.machine.facts.append(tell.kept_twice(write, node, name, held))

    def apply_function(self, cls: Class, args: list[Any], node: ast.Call) -> Any:
        """`Scale.apply(x)` of a torch.autograd.Function written in this file."""
        forward = self.find_method(cls, "forward")
        given = [t for a in args for t in tensors_in(a)]
        place = node
        if forward is None or not self.inherits(cls, ("torch.autograd.Function", "Function")):
            return self.machine.unknown(given, place)
        context = Instance(cls)
        before = {id(t): len(t.storage.writes) for t in given}
        previous = self.machine.mode
        self.machine.switch("no_grad")
        try:
            returned = self.call_function(forward, [context, *args], {}, node)
        finally:
            self.machine.mode = previous
        marked = _calls(forward.info.node, "mark_dirty")
        result = self.of_custom(returned, given, before, marked, node)
        if isinstance(result, Tensor) and result is not returned and not result.view:
            self.keep_saved(result, context, given, cls.info.name, node)
            self.keep_result(result, returned, context)
        return result

    def keep_result(self, result: Tensor, returned: Any, context: Instance) -> None:
        """A Function that saves what it returns keeps the very memory that its caller gets."""
        if not isinstance(returned, Tensor) or result.node is None:
            return
        result.sure = result.sure or returned.sure
        for save in result.node.saves:
            if save.storage is returned.storage:
                save.storage = result.storage
                result.storage.saved = True

    def keep_saved(self, result: Tensor, context: Instance, given: list[Tensor], name: str, node: ast.Call) -> None:
        """What `ctx.save_for_backward` was given is kept for the Function's backward."""
        grad = max((t.wants_grad for t in given), default=Grad.NO)
        if grad == Grad.NO or self.machine.mode != "grad":
            return
        result.node = Node(name, node, [n for t in given for n in t.nodes()])
        result.grad = grad
        for tensor in tensors_in(context.attributes.get(" saved")):
            time, certain = self.machine.clock, grad == Grad.YES
            result.node.saves.append(Save(tensor.storage, time, "saved tensor", None, certain))
            tensor.storage.saved = True

    def of_custom(
        self, returned: Any, given: list[Tensor], before: dict[int, int], marked: bool, node: ast.Call
    ) -> Any:
        place = node
        written = next((t for t in given if len(t.storage.writes) > before[id(t)]), None)
        if isinstance(returned, Tensor) and any(returned is t for t in given):
            if written is returned and not marked and self.machine.mode == "grad":
                made = self.machine.view_of(returned, place, "apply", "custom")
                made.base, made.leaf = returned, False
                made.origin = returned.storage.writes[-1].place
                return made
            return returned
        return self.machine.unknown(given, place)


def _calls(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == name for n in ast.walk(node))

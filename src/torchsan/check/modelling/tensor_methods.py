"""Methods of tensors that do more than an op of the effects table."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.modelling.names import (
    PLAIN_METHODS,
)
from torchsan.check.modelling.parts import Args, Kwargs, TorchParts
from torchsan.check.modelling.sizes import made_thin
from torchsan.check.modelling.values import (
    Grad,
    Node,
    Plain,
    Sequence,
    Storage,
    Tensor,
    tensors_in,
    truth,
)
from torchsan.effects import lookup


class TensorMethods(TorchParts):
    """Calls of methods of tensors."""

    def call_method(self, tensor: Tensor, name: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        machine, place = self.machine, node
        handler = METHODS.get(name)
        if handler is not None:
            return handler(self, tensor, args, kwargs, node)
        if name in PLAIN_METHODS:
            return Plain()
        if name.startswith("new_"):
            made = machine.fresh(place, name)
            made.thin = made_thin(args[:1] if name == "new_full" else args)
            return made
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else node
        row = lookup(f"Tensor.{name}")
        if row is None or (not tensor.sure and not row.params and not row.writes):
            return machine.unknown([tensor, *tensors_in(Sequence([*args, *kwargs.values()]))], place)
        texts: list[ast.AST] = [receiver, *node.args]
        if not tensor.sure and not name.endswith("_"):
            return self.guess(name, tensor, args, kwargs, node, texts)
        return self.op(f"Tensor.{name}", [tensor, *args], kwargs, node, texts)

    def guess(self, name: str, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call, texts: list[ast.AST]) -> Any:
        """A method of a value that is only probably a tensor: the same, but the result is no surer."""
        result = self.op(f"Tensor.{name}", [tensor, *args], kwargs, node, texts)
        tensor.sure = False
        if (
            isinstance(result, Tensor)
            and result is not tensor
            and name in ("copy", "index", "split", "max", "min", "sum", "mean")
        ):
            result.sure = False
        return result

    def method_detach(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        made = self.machine.view_of(tensor, node, "detach")
        made.detached, made.node, made.grad = True, None, Grad.NO
        if tensor.wants_grad == Grad.YES:
            made.cut_at = node
            if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.BinOp):
                made.constants = (node,)
        return made

    def method_item(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        made = Plain()
        made.cut_at = node if tensor.wants_grad == Grad.YES else None
        return made

    def method_untyped_storage(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        return self.method_numpy(tensor, args, kwargs, node)

    method_storage = method_untyped_storage

    method__typed_storage = method_untyped_storage

    def method_data(self, tensor: Tensor, node: ast.AST) -> Any:
        made = self.machine.view_of(tensor, node, ".data")
        made.detached = made.behind = True
        made.node, made.grad = None, Grad.NO
        return made

    def method_numpy(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        made = self.method_data(tensor, node)
        made.op = "numpy"
        return made

    def method_clone(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        machine, place = self.machine, node
        made = machine.fresh(place, "clone", grad=tensor.wants_grad if machine.mode == "grad" else Grad.NO)
        if machine.mode == "grad" and tensor.nodes():
            made.node = Node("clone", place, tensor.nodes())
        made.sure = tensor.sure
        return made

    def method_requires_grad_(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        self.set_requires_grad(tensor, args[0] if args else kwargs.get("requires_grad", Plain(True, True)))
        return tensor

    def set_requires_grad(self, tensor: Tensor, wanted: Any) -> None:
        answer = truth(wanted)
        if tensor.detached and not tensor.behind and answer is not False:
            # `x.detach().requires_grad_()`: a leaf again.
            tensor.detached, tensor.apart, tensor.node, tensor.cut_at = False, True, None, None
            tensor.base, tensor.view, tensor.constants = None, "", ()
        if answer is None:
            tensor.grad = Grad.MAYBE
        elif not tensor.nodes():
            tensor.grad = Grad.YES if answer else Grad.NO
            tensor.leaf = True

    def method_detach_(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        tensor.node, tensor.grad, tensor.apart, tensor.leaf = None, Grad.NO, True, False
        return tensor

    def method_set_(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        """Other memory for one tensor: the memory that it had stays as it is."""
        tensor.storage, tensor.base, tensor.view = Storage("unknown"), None, ""
        return tensor

    def method_sample(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        """Of a distribution: drawn without a graph. Of anything else it may be whatever."""
        return self.machine.unknown()

    def method_backward(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        asked = {k.arg for k in node.keywords if isinstance(k.value, ast.IfExp)}
        # `retain_graph=True if i + 1 < n else False`: all rounds but the last keep it.
        keep = any(k in asked or truth(kwargs[k]) is not False for k in ("retain_graph", "create_graph") if k in kwargs)
        self.machine.backward([tensor], node, keep=keep or "inputs" in kwargs)
        return Plain(None, True)

    def method_retain_grad(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        tensor.keeps_grad = True
        return Plain(None, True)

    def method_register_hook(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        return Plain()


METHODS = {
    name.removeprefix("method_"): function
    for name, function in vars(TensorMethods).items()
    if name.startswith("method_") and name != "method_data"
}

"""What calls into torch do to the machine: functions, tensor methods, layers, optimizers."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from typing import Any

from torchsan.check.machine import Machine, PathEnded
from torchsan.check.torch_names import (
    ADDITIVE,
    CONTAINERS,
    FACTORIES,
    INPLACE_POSITION,
    INTEGER,
    MAY_SHARE,
    NEW_ARRAYS,
    NORMS,
    NOT_WRITING,
    PLAIN_METHODS,
    WITH_PARAMETERS,
)
from torchsan.check.values import (
    Function,
    Grad,
    Instance,
    Layer,
    Library,
    Mapping,
    Node,
    Optimizer,
    Plain,
    Sequence,
    Snapshot,
    Storage,
    Tensor,
    parameters_of,
    tensors_in,
)
from torchsan.effects import OpEffects, lookup

Args = list[Any]
Kwargs = dict[str, Any]


def truth(value: Any) -> bool | None:
    return bool(value.value) if isinstance(value, Plain) and value.known else None


class TorchModel:
    """Calls into torch. `interpreter` runs functions of the program where torch calls back."""

    def __init__(self, machine: Machine, interpreter: Any) -> None:
        self.machine = machine
        self.interpreter = interpreter

    # --- functions ----------------------------------------------------------------------------------

    def call_library(self, name: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        space, _, last = name.rpartition(".")
        if space in ("torch.optim", "torch.optim.optimizer") and last[:1].isupper():
            return Optimizer(last, args[0] if args else kwargs.get("params"))
        if space == "torch.nn" and last[:1].isupper():
            return self.construct(last, args, kwargs, node)
        if name in ("copy.deepcopy", "copy.copy"):
            return self.copied(args[0], node, deep=last == "deepcopy") if args else Plain()
        if name.startswith("numpy.") and last in NEW_ARRAYS:
            made = self.machine.fresh(node, "numpy")
            made.behind = made.detached = True
            return made
        if name == "numpy.asarray" and args and isinstance(args[0], Tensor) and args[0].sure:
            return self.method_numpy(args[0], args, kwargs, node)
        if name.startswith("torch."):
            return self.torch_function(name, last, args, kwargs, node)
        given = tensors_in(Sequence([*args, *kwargs.values()]))
        return self.machine.unknown(given, node, passes="loss" in last.lower() or "criterion" in last.lower())

    def torch_function(self, name: str, last: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        machine = self.machine
        place = node
        if name in ("torch.autograd.grad", "torch.autograd.backward"):
            keep = any(truth(kwargs.get(k)) is not False and k in kwargs for k in ("retain_graph", "create_graph"))
            # autograd.grad walks, and frees, only what lies between the two.
            machine.backward(tensors_in(args[0]) if args else (), node, keep=keep or last == "grad")
            return self.gradients(kwargs, node) if last == "grad" else Plain()
        if name == "torch.from_numpy":
            return self.of_array(args, node)
        if name in ("torch.from_dlpack", "torch.utils.dlpack.from_dlpack") and args and isinstance(args[0], Tensor):
            return self.method_numpy(args[0], args, kwargs, node)
        if last.startswith("_foreach_") and args:
            return self.foreach(last, args, node)
        if "out" in kwargs and last in FACTORIES:
            for target in tensors_in(kwargs["out"]):
                machine.write(target, node, last, self.keyword(node, "out"))
            return kwargs["out"]
        if name == "torch.tensor" and args and isinstance(args[0], Tensor | Plain):
            made = self.factory(last, kwargs, node)
            graded = isinstance(args[0], Tensor) and args[0].wants_grad == Grad.YES
            made.cut_at = node if graded else args[0].cut_at
            return made
        if last in FACTORIES and name.count(".") == 1:
            return self.factory(last, kwargs, node)
        if name.startswith("torch.nn.init."):
            if last.endswith("_") and args and isinstance(args[0], Tensor):
                # nn.init works under no_grad.
                previous, machine.mode = machine.mode, "no_grad"
                try:
                    machine.write(args[0], node, last, node.args[0] if node.args else node)
                finally:
                    machine.mode = previous
                return args[0]
            return machine.unknown()
        if name.startswith(("torch.nn.functional.", "torch.linalg.", "torch.special.", "torch.fft.")) or (
            name.count(".") == 1
        ):
            return self.op(name, args, kwargs, node)
        return machine.unknown(tensors_in(Sequence([*args, *kwargs.values()])), place)

    def gradients(self, kwargs: Kwargs, node: ast.Call) -> Any:
        """What autograd.grad returns: without create_graph nothing can be differentiated again."""
        if truth(kwargs.get("create_graph", Plain(False, True))) is not False:
            return self.machine.unknown()

        def one() -> Tensor:
            made = self.machine.fresh(node, "autograd.grad")
            made.cut_at = node
            return made

        return Sequence([], one)

    def of_array(self, args: Args, node: ast.Call) -> Any:
        """A tensor over the memory of an array: what is written there, autograd does not see."""
        source = args[0] if args else None
        if isinstance(source, Tensor) and source.op == "numpy":
            made = self.machine.view_of(source, node, "from_numpy")
            made.behind = made.detached = False
            made.view, made.base = "", None
            return made
        return Tensor(Storage("unknown"), place=node, op="from_numpy")

    def foreach(self, last: str, args: Args, node: ast.Call) -> Any:
        """torch._foreach_add_(list, …): one write to each."""
        given = list(tensors_in(args[0]))
        if last.endswith("_"):
            others = [t for a in args[1:] for t in tensors_in(a)]
            for tensor in given:
                self.machine.write(tensor, node, last, node.args[0] if node.args else node, values=others)
        return self.machine.unknown(given, node)

    def factory(self, last: str, kwargs: Kwargs, node: ast.Call) -> Tensor:
        graded = truth(kwargs.get("requires_grad")) is True
        grad = Grad.YES if graded and self.machine.mode != "inference" else Grad.NO
        return self.machine.fresh(node, last, grad=grad, leaf=graded)

    def op(self, name: str, args: Args, kwargs: Kwargs, node: ast.AST, texts: list[ast.AST] | None = None) -> Any:
        """Any op of the effects table: bind its tensors, write, save, make its result."""
        machine, place = self.machine, node
        last = name.rpartition(".")[2]
        given = list(tensors_in(Sequence([*args, *kwargs.values()])))
        if truth(kwargs.get("inplace")) is True and args:
            return self.inplace(lookup(name), last + "_", args, kwargs, node, texts)
        row = lookup(name)
        if last in MAY_SHARE and args and isinstance(args[0], Tensor) and args[0].sure:
            return self.perhaps_shared(args[0], last, node)
        if row is None or not given:
            return machine.unknown(given, place)
        if last in NOT_WRITING:
            return args[0]
        if row.writes and "input" in row.writes and last.endswith("_"):
            return self.inplace(row if row.params else _twin(row.name) or row, last, args, kwargs, node, texts)
        if row.readout:
            return Plain()
        if last in NORMS and len(args) == 1 and not kwargs.keys() & {"p", "ord"}:
            # Only some orders need nothing; the usual one needs both.
            row = replace(row, needs=row.may_need)
        for value in args[:1]:
            if isinstance(value, Tensor):
                value.sure = True
        bound, names = self.bind(row, last, args, kwargs, node, texts)
        result = self.result(row, last, bound, names, args, kwargs, node)
        if isinstance(result, Tensor):
            self.carry(result, last, given, args)
        out = kwargs.get("out")
        if out is not None:
            for target in tensors_in(out):
                machine.write(target, node, last, self.keyword(node, "out"))
            return out
        return result

    def carry(self, result: Tensor, last: str, given: list[Tensor], args: Args) -> None:
        """What was cut from the graph on the way to a result."""
        if result.wants_grad == Grad.NO:
            result.cut_at = next((t.cut_at for t in given if t.cut_at is not None), None)
        scaled = last in ("mul", "div") and any(isinstance(a, Plain) for a in args)
        if last in ADDITIVE or scaled:
            kept = [c for t in given for c in t.constants]
            # A term that has a graph, and one that has lost it.
            if result.wants_grad == Grad.YES:
                result.constants = tuple(kept)
            elif len(given) == 1 and given[0].detached:
                result.constants = given[0].constants

    def perhaps_shared(self, source: Tensor, last: str, node: ast.AST) -> Tensor:
        """`x.float()`: x itself or a copy, so of its memory nothing is claimed."""
        grad = Grad.NO if self.machine.mode in ("no_grad", "inference") else source.wants_grad
        made = self.machine.fresh(node, last, grad=min(grad, Grad.MAYBE) if self.machine.mode == "unsure" else grad)
        made.storage.kind = "unknown"
        if grad and source.nodes():
            made.node = Node(last, node, source.nodes())
        return made

    def bind(
        self,
        row: OpEffects,
        last: str,
        args: Args,
        kwargs: Kwargs,
        node: ast.AST,
        texts: list[ast.AST] | None,
    ) -> tuple[dict[str, list[Tensor]], dict[str, ast.AST]]:
        """Tensors by the parameter they are given for, and how the program calls them."""
        params = list(row.params) or ["input"]
        if last == "where" and isinstance(node, ast.Call) and texts is None:
            params = ["condition", "input", "other"]
        bound: dict[str, list[Tensor]] = {}
        names: dict[str, ast.AST] = {}
        for index, value in enumerate(args):
            param = params[index] if index < len(params) else f"arg{index}"
            found = list(tensors_in(value))
            if found:
                bound.setdefault(param, []).extend(found)
                if texts and index < len(texts):
                    names[param] = texts[index]
                elif isinstance(node, ast.Call) and index < len(node.args):
                    names[param] = node.args[index]
        for key, value in kwargs.items():
            found = list(tensors_in(value))
            if found and key != "out":
                bound.setdefault("input" if key == "self" else key, []).extend(found)
        return bound, names

    def result(
        self,
        row: OpEffects,
        last: str,
        bound: dict[str, list[Tensor]],
        names: dict[str, ast.AST],
        args: Args,
        kwargs: Kwargs,
        node: ast.AST,
    ) -> Any:
        machine, place = self.machine, node
        source = args[0] if args and isinstance(args[0], Tensor) else None
        shares = (row.view or row.alias) and not row.may_alias and last not in MAY_SHARE
        if source is not None and shares:
            if row.view == "multi" or (row.outputs > 1 and row.alias):
                return Sequence([], lambda: machine.view_of(source, place, last, "several"))
            return machine.view_of(source, place, last, "expanded" if last.startswith("expand") else "view")
        graph, grad, sure, maybe = machine.node_for(row, bound, names, place)
        if last in INTEGER:
            graph, grad = None, Grad.NO
        outputs = [self.output(graph, grad, last, node)]
        if row.outputs > 1 and self.several(last, args, kwargs):
            outputs += [self.output(None, Grad.NO, last, node) for _ in range(row.outputs - 1)]
        if graph is not None and (row.needs or row.may_need):
            for index, output in enumerate(outputs):
                machine.save(graph, row, f"out{index}", output, sure, maybe, None)
        if len(outputs) > 1:
            return Sequence(list(outputs), fields=("values", "indices"))
        return outputs[0]

    def several(self, last: str, args: Args, kwargs: Kwargs) -> bool:
        """`x.max()` is one tensor, `x.max(1)` two."""
        if last in ("max", "min", "median", "nanmedian"):
            return "dim" in kwargs or (len(args) > 1 and not isinstance(args[1], Tensor))
        return True

    def output(self, graph: Node | None, grad: Grad, last: str, node: ast.AST) -> Tensor:
        made = self.machine.fresh(node, last, grad=grad)
        made.node = graph
        return made

    def inplace(
        self,
        row: OpEffects | None,
        last: str,
        args: Args,
        kwargs: Kwargs,
        node: ast.AST,
        texts: list[ast.AST] | None = None,
    ) -> Any:
        target = args[0]
        if not isinstance(target, Tensor):
            return self.machine.unknown()
        label = texts[0] if texts else node.args[0] if isinstance(node, ast.Call) and node.args else node
        bound: dict[str, list[Tensor]] = {}
        if row is not None:
            bound, _ = self.bind(row, last, args, kwargs, node, texts)
            bound.pop("input", None)
        others = [t for given in bound.values() for t in given]
        self.machine.write(target, node, last, label, values=others, row=row, bound=bound)
        return target

    # --- tensor methods -----------------------------------------------------------------------------

    def call_method(self, tensor: Tensor, name: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        machine, place = self.machine, node
        handler = METHODS.get(name)
        if handler is not None:
            return handler(self, tensor, args, kwargs, node)
        if name in PLAIN_METHODS:
            return Plain()
        if name.startswith("new_"):
            return machine.fresh(place, name)
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
        if answer is None:
            tensor.grad = Grad.MAYBE
        elif not tensor.nodes():
            tensor.grad = Grad.YES if answer else Grad.NO
            tensor.leaf = True

    def method_backward(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        keep = any(k in kwargs and truth(kwargs[k]) is not False for k in ("retain_graph", "create_graph"))
        self.machine.backward([tensor], node, keep=keep or "inputs" in kwargs)
        return Plain(None, True)

    def method_retain_grad(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        tensor.keeps_grad = True
        return Plain(None, True)

    def method_register_hook(self, tensor: Tensor, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        return Plain()

    # --- layers -------------------------------------------------------------------------------------

    def construct(self, last: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        place = node
        if last in ("Parameter", "Buffer"):
            source = args[0] if args else kwargs.get("data")
            graded = last == "Parameter" and truth(kwargs.get("requires_grad", Plain(True, True)))
            storage = Storage("parameter" if last == "Parameter" else "buffer")
            if isinstance(source, Tensor) and source.sure and last == "Buffer":
                return source
            grad = Grad.YES if graded else Grad.NO if graded is False else Grad.MAYBE
            return Tensor(storage, grad, leaf=True, place=place, op=last)
        layer = Layer(last, place)
        if last in CONTAINERS:
            self.fill_container(layer, args, kwargs)
        if last in WITH_PARAMETERS:
            row = lookup(f"nn.{last}")
            names = {"weight", "bias"} | {n for n in (row.needs if row else ()) if n.startswith("weight")}
            for name in sorted(names):
                if name == "bias" and truth(kwargs.get("bias")) is False:
                    continue
                layer.parameters[name] = Tensor(
                    Storage("parameter", name), Grad.YES, leaf=True, place=place, op="Parameter"
                )
        position = INPLACE_POSITION.get(last)
        flag = kwargs.get("inplace")
        if flag is None and position is not None and len(args) > position:
            flag = args[position]
        layer.inplace = truth(flag) is True
        return layer

    def fill_container(self, layer: Layer, args: Args, kwargs: Kwargs) -> None:
        given = args[0] if len(args) == 1 and isinstance(args[0], Sequence | Mapping) else Sequence(args)
        if isinstance(given, Mapping):
            layer.children = list(given.items.values())
            layer.names = [str(k) for k in given.items]
        elif isinstance(given, Sequence):
            for item in given.items:
                if isinstance(item, Sequence) and len(item.items) == 2:
                    item = item.items[1]
                layer.children.append(item)

    def call_layer(self, layer: Layer, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        machine, place = self.machine, node
        given = list(tensors_in(Sequence([*args, *kwargs.values()])))
        if layer.name == "Sequential":
            value = args[0] if args else machine.unknown()
            for child in layer.children:
                value = self.interpreter.call_value(child, [value], {}, node)
            return value
        if layer.name == "Identity":
            return args[0] if args else machine.unknown()
        row = lookup(f"nn.{layer.name}")
        if not given:
            return machine.unknown((), place)
        for tensor in given[:1]:
            tensor.sure = True
        texts: list[ast.AST] = list(node.args)
        if layer.inplace:
            label = texts[0] if texts else node
            machine.write(given[0], node, layer.name, label, origin=layer.place, row=self._result_only(row, layer))
            return given[0]
        if row is None:
            past = Node(layer.name, place, [n for t in given for n in t.nodes()])
            made = self.output(past if machine.mode == "grad" else None, Grad.MAYBE, layer.name, node)
            made.sure = False
            return made
        bound: dict[str, list[Tensor]] = {"input": given[:1]}
        bound.update({f"input{i}": [t] for i, t in enumerate(given[1:], 1)})
        bound.update({name: [p] for name, p in layer.parameters.items()})
        names = {"input": texts[0] if texts else node}
        if row.alias and not layer.parameters:
            return machine.unknown(given, place)
        graph, grad, sure, maybe = machine.node_for(row, bound, names, place)
        made = self.output(graph, grad, layer.name, node)
        if graph is not None:
            machine.save(graph, row, "out0", made, sure, maybe, None)
        if layer.name in ("LSTM", "GRU", "RNN", "MultiheadAttention"):
            rest = self.output(graph, grad, layer.name, node)
            return Sequence([made, Sequence([rest, rest]) if layer.name == "LSTM" else rest])
        if row.outputs > 1:
            return Sequence([made, *(self.output(graph, grad, layer.name, node) for _ in range(row.outputs - 1))])
        return made

    def _result_only(self, row: OpEffects | None, layer: Layer) -> OpEffects | None:
        """An in-place layer has overwritten its input, so it can only need its result."""
        if row is None or "out0" not in row.needs:
            return None
        return OpEffects(layer.name, ("input",), {"out0": row.needs["out0"]})

    # --- optimizers and modules ---------------------------------------------------------------------

    def call_optimizer(self, optimizer: Optimizer, name: str, args: Args, node: ast.Call) -> Any:
        if name == "step":
            result: Any = Plain(None, True)
            if args and isinstance(args[0], Function):
                result = self.interpreter.call_value(args[0], [], {}, node)
            target = node.func.value if isinstance(node.func, ast.Attribute) else node
            self.machine.step(optimizer, node, target)
            return result
        if name == "zero_grad":
            self.clear_gradients(optimizer)
        if name == "add_param_group" and args:
            optimizer.given = Sequence([optimizer.given, args[0]])
        return Plain() if name != "param_groups" else self.machine.unknown()

    def call_module(self, module: Instance | Layer, name: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        """What nn.Module gives to every module."""
        machine, place = self.machine, node
        if name in ("parameters", "buffers"):
            return Sequence(list(parameters_of(module)) if name == "parameters" else [])
        if name == "named_parameters":
            return Sequence([Sequence([Plain(), p]) for p in parameters_of(module)])
        if name == "state_dict":
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
            return Snapshot(module, place, machine.clock, receiver)
        if name == "load_state_dict":
            self.loaded(module, args, node)
            return Plain()
        if name == "register_buffer" and isinstance(module, Instance) and len(args) > 1:
            key = args[0].value if isinstance(args[0], Plain) and args[0].known else None
            if isinstance(args[1], Tensor) and isinstance(key, str):
                args[1].storage.kind, args[1].storage.name = "buffer", key
                module.attributes[key] = args[1]
            return Plain()
        if name == "register_parameter" and isinstance(module, Instance) and len(args) > 1:
            if isinstance(args[0], Plain) and args[0].known:
                module.attributes[str(args[0].value)] = args[1]
            return Plain()
        if name == "add_module" and isinstance(module, Instance) and len(args) > 1:
            if isinstance(args[0], Plain) and args[0].known:
                module.attributes[str(args[0].value)] = args[1]
            return Plain()
        if name == "requires_grad_":
            wanted = args[0] if args else kwargs.get("requires_grad", Plain(True, True))
            for parameter in list(parameters_of(module)):
                self.set_requires_grad(parameter, wanted)
            return module
        if name in ("to", "cuda", "cpu", "float", "double", "half", "train", "eval", "apply", "share_memory"):
            return module
        if name in ("append", "add_module", "insert") and isinstance(module, Layer):
            module.children += args[-1:]
            return module
        if name == "extend" and isinstance(module, Layer) and args and isinstance(args[0], Sequence):
            module.children += args[0].items
            return module
        if name == "zero_grad":
            self.clear_gradients(module)
            return Plain()
        if name == "forward" and isinstance(module, Layer):
            return self.call_layer(module, args, kwargs, node)
        return machine.unknown(tensors_in(Sequence([*args, *kwargs.values()])), place)

    def clear_gradients(self, owner: Any) -> None:
        for parameter in parameters_of(owner):
            parameter.storage.has_gradient = False

    def loaded(self, module: Any, args: Args, node: ast.Call) -> None:
        snapshot = args[0] if args else None
        if isinstance(snapshot, Snapshot) and snapshot.owner is module:
            steps = [p.storage.written_after(snapshot.time) for p in parameters_of(module)]
            step = next((s for s in steps if s is not None and s.how == "step"), None)
            if step is not None:
                self.machine.facts.append(self.machine.tell.snapshot(snapshot, step, node, node.args[0]))
            else:
                self.loaded_itself(module, snapshot, node)

    def loaded_itself(self, module: Any, snapshot: Snapshot, node: ast.Call) -> None:
        """`target.load_state_dict(online.state_dict())` where both names are one module."""
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if receiver is None or snapshot.name is None:
            return
        tell, words = self.machine.tell, self.machine.program.words
        if words(receiver) == words(snapshot.name):
            return
        second = [(name, at) for name, at in module.called if words(name) == words(receiver)]
        first = [name for name, _ in module.called if words(name) == words(snapshot.name)]
        if second and first:
            self.machine.facts.append(tell.same_module(second[0][1], receiver, snapshot.name))

    def copied(self, value: Any, node: ast.AST, *, deep: bool) -> Any:
        if isinstance(value, Snapshot):
            return Plain() if deep else value
        if isinstance(value, Tensor):
            made = self.machine.fresh(node, "copy", grad=value.wants_grad, leaf=value.leaf)
            made.sure = value.sure
            return made
        return _Copier().copy(value) if deep else value

    # --- words --------------------------------------------------------------------------------------

    def keyword(self, node: ast.AST, key: str) -> ast.AST:
        return next((k.value for k in getattr(node, "keywords", ()) if k.arg == key), node)


@cache
def _twin(name: str) -> OpEffects | None:
    """For an in-place op that could not be probed: it needs its result where its twin does."""
    other = lookup(name.rstrip("_"))
    if other is None or "out0" not in other.needs:
        return None
    return OpEffects(name, other.params, {"out0": other.needs["out0"]}, writes=("input",))


METHODS = {
    name.removeprefix("method_"): function
    for name, function in vars(TorchModel).items()
    if name.startswith("method_") and name != "method_data"
}


class _Copier:
    """copy.deepcopy of modules: new memory, same structure."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}

    def copy(self, value: Any) -> Any:
        if id(value) in self.known:
            return self.known[id(value)]
        made: Any = value
        if isinstance(value, Tensor):
            made = Tensor(Storage(value.storage.kind), value.grad, leaf=value.leaf, sure=value.sure, place=value.place)
        elif isinstance(value, Instance):
            made = Instance(value.cls, {}, value.module)
            self.known[id(value)] = made
            made.attributes = {k: self.copy(v) for k, v in value.attributes.items()}
        elif isinstance(value, Layer):
            made = Layer(value.name, value.place, value.inplace, names=value.names)
            made.parameters = {k: self.copy(v) for k, v in value.parameters.items()}
            made.children = [self.copy(c) for c in value.children]
        elif isinstance(value, Sequence):
            made = Sequence([self.copy(i) for i in value.items], value.make)
        elif isinstance(value, Mapping):
            made = Mapping({k: self.copy(v) for k, v in value.items.items()})
        self.known[id(value)] = made
        return made


__all__ = ["Library", "PathEnded", "TorchModel", "truth"]

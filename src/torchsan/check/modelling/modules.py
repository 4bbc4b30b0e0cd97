"""Layers, modules and optimizers."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.modelling.names import (
    CONTAINERS,
    INPLACE_POSITION,
    KEEP_RESULT_IN_PLACE,
    WITH_PARAMETERS,
)
from torchsan.check.modelling.parts import Args, Kwargs, TorchParts
from torchsan.check.modelling.values import (
    Function,
    Grad,
    Instance,
    Layer,
    Mapping,
    Node,
    Optimizer,
    Plain,
    Sequence,
    Snapshot,
    Storage,
    Tensor,
    modules_below,
    parameters_of,
    tensors_in,
    truth,
)
from torchsan.effects import OpEffects, lookup


class TorchModules(TorchParts):
    """What torch.nn and torch.optim define."""

    def construct(self, last: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        place = node
        if last in ("Parameter", "Buffer"):
            source = args[0] if args else kwargs.get("data")
            graded = last == "Parameter" and truth(kwargs.get("requires_grad", Plain(True, True)))
            storage = Storage("parameter" if last == "Parameter" else "buffer")
            if isinstance(source, Tensor) and source.sure and last == "Buffer":
                return source
            grad = Grad.YES if graded else Grad.NO if graded is False else Grad.MAYBE
            thin = isinstance(source, Tensor) and source.thin
            return Tensor(storage, grad, leaf=True, place=place, op=last, thin=thin)
        layer = Layer(last, place, inside=self.machine.inside)
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
        made.lost = graph is None and bool(layer.parameters)
        if graph is not None:
            machine.save(graph, row, "out0", made, sure, maybe, None)
        if layer.name in ("LSTM", "GRU", "RNN", "MultiheadAttention", "LSTMCell"):
            rest = self.output(graph, grad, layer.name, node)
            return Sequence([made, Sequence([rest, rest]) if layer.name == "LSTM" else rest])
        return made

    def _result_only(self, row: OpEffects | None, layer: Layer) -> OpEffects | None:
        """An in-place layer has overwritten its input, so it can only need its result."""
        if layer.name not in KEEP_RESULT_IN_PLACE:
            return None
        return OpEffects(layer.name, ("input",), {"out0": ("input",)})

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
        if name == "apply" and args:
            for below in modules_below(module):
                self.interpreter.call_value(args[0], [below], {}, node)
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
        elif isinstance(value, Snapshot):
            # What it handed out is copied with it.
            made = Plain()
        elif isinstance(value, Mapping):
            made = Mapping({k: self.copy(v) for k, v in value.items.items()})
        self.known[id(value)] = made
        return made

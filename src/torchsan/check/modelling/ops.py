"""Functions of torch: bind their tensors, write, save, make their result."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from typing import Any

from torchsan.check.modelling.names import (
    ADDITIVE,
    CONVERSIONS,
    FACTORIES,
    INTEGER,
    MAY_SHARE,
    NEW_ARRAYS,
    NORMS,
    NOT_WRITING,
    USUALLY_SHARED,
)
from torchsan.check.modelling.packages import PASS_ON, package_layer
from torchsan.check.modelling.parts import Args, Kwargs, TorchParts
from torchsan.check.modelling.sizes import expanded_as, made_thin, stays_thin
from torchsan.check.modelling.values import (
    Grad,
    Node,
    Optimizer,
    Plain,
    Sequence,
    Storage,
    Tensor,
    tensors_in,
    truth,
)
from torchsan.effects import OpEffects, lookup

# Borders that are made of the input, which is kept.
KEEPING_PADS = frozenset({"replicate", "reflect"})


class TorchOps(TorchParts):
    """Calls of functions and ops."""

    def call_library(self, name: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Any:
        space, _, last = name.rpartition(".")
        if space in ("torch.optim", "torch.optim.optimizer") and last[:1].isupper():
            return Optimizer(last, args[0] if args else kwargs.get("params"))
        if name in PASS_ON:
            return args[0] if args else kwargs.get("module", Plain())
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
        layer = package_layer(name, kwargs, node, self.construct) if last[:1].isupper() else None
        if layer is not None:
            return layer
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
                machine.write(target, node, last, self.keyword(node, "out"), told=True)
            return kwargs["out"]
        if name == "torch.tensor" and args and isinstance(args[0], Tensor | Plain):
            made = self.factory(last, kwargs, node)
            graded = isinstance(args[0], Tensor) and args[0].wants_grad == Grad.YES
            made.cut_at = node if graded else args[0].cut_at
            made.thin = isinstance(args[0], Plain)
            return made
        if last in FACTORIES and name.count(".") == 1:
            made = self.factory(last, kwargs, node)
            made.thin = made_thin(args) and not last.endswith("_like")
            return made
        if name.startswith("torch.nn.init."):
            if last.endswith("_") and args and isinstance(args[0], Tensor):
                # nn.init works under no_grad.
                previous = machine.mode
                machine.switch("no_grad")
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
            shared = self.perhaps_shared(args[0], last, node)
            shared.thin = stays_thin(args[0], last, args[1:], kwargs)
            return shared
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
        mode = kwargs.get("mode", args[2] if len(args) > 2 else None)
        if last == "pad" and isinstance(mode, Plain) and mode.value in KEEPING_PADS:
            # A constant border needs nothing of the input.
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
                machine.write(target, node, last, self.keyword(node, "out"), told=True)
            return out
        return result

    def carry(self, result: Tensor, last: str, given: list[Tensor], args: Args) -> None:
        """What was cut from the graph on the way to a result."""
        result.firm = all(a.firm if isinstance(a, Tensor) else getattr(a, "known", True) for a in args)
        if result.wants_grad == Grad.NO:
            result.lost = any(t.lost or t.wants_grad == Grad.YES for t in given)
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
        made.storage.kind, made.lost = "unknown", source.lost
        if last in USUALLY_SHARED:
            made.storage.probably, made.storage.sometimes = source.storage, source.storage.sometimes
        elif last in CONVERSIONS:
            made.storage.probably, made.storage.sometimes = source.storage, True
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
            kind = expanded_as(source, last, args[1:]) if last.startswith("expand") else "view"
            viewed = machine.view_of(source, place, last, kind)
            viewed.thin = stays_thin(source, last, args[1:], kwargs)
            return viewed
        graph, grad, sure, maybe = machine.node_for(row, bound, names, place)
        if last in INTEGER:
            graph, grad = None, Grad.NO
        outputs = [self.output(graph, grad, last, node)]
        outputs[0].thin = stays_thin(None, last, args[1:], kwargs)
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

    def keyword(self, node: ast.AST, key: str) -> ast.AST:
        return next((k.value for k in getattr(node, "keywords", ()) if k.arg == key), node)


@cache
def _twin(name: str) -> OpEffects | None:
    """For an in-place op that could not be probed: it needs its result where its twin does."""
    other = lookup(name.rstrip("_"))
    if other is None or "out0" not in other.needs:
        return None
    return OpEffects(name, other.params, {"out0": other.needs["out0"]}, writes=("input",))

"""The ways of capturing a model that torch offers, each as something that can be run again and again."""

from __future__ import annotations

import copy
import importlib.util
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchsan import compat_capture
from torchsan.model import Place
from torchsan.verify.compare import Tolerance, flatten
from torchsan.verify.compiled import BACKENDS
from torchsan.verify.frames import user_places
from torchsan.verify.onnx_runner import OnnxRunner
from torchsan.verify.subject import (
    Outcome,
    Plan,
    Subject,
    identical,
    one_line,
    quiet,
    run_calls,
    seed_everything,
    tensors_of,
)
from torchsan.verify.timing import time_limit

# In the order in which they are preferred when several are faithful.
METHODS = {
    "export": "torch.export.export, every dimension that can vary made dynamic",
    "export-strict": "torch.export.export(strict=True), dynamic as above",
    "onnx": "torch.onnx.export(dynamo=True), run with onnxruntime",
    "jit.script": "torch.jit.script (deprecated since torch 2.10: prefer torch.export)",
    "jit.trace": "torch.jit.trace (deprecated since torch 2.10: prefer torch.export)",
    "export-static": "torch.export.export with the example's sizes fixed",
    "compile": "torch.compile with the backend aot_eager, gradients too; on request or if compiled",
    "compile-inductor": "the same with the backend inductor; part of compile where there is a C++ compiler",
}
ON_REQUEST = ("export-static", *BACKENDS)
CAPTURE_LIMIT = 120.0


def onnx_missing() -> str:
    """The packages that ONNX needs and that are not installed."""
    needed = ("onnx", "onnxscript", "onnxruntime")
    return ", ".join(name for name in needed if importlib.util.find_spec(name) is None)


@dataclass
class Captured:
    """A capture: `fresh()` gives it as it was made, whatever earlier runs did to it."""

    method: str
    fresh: Callable[[], Callable[..., Any]]
    artifact: Any = None
    bound: bool = False
    only_tensors: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
    warnings: list[tuple[str, int, str]] = field(default_factory=list)
    example: list[Any] | None = None
    dynamic: Any = None
    can_widen: bool = False
    live_changes: list[str] = field(default_factory=list)
    # Parameters and buffers that forward changes once and for all, and that are as capturing left them.
    settled: list[str] = field(default_factory=list)
    source: str = ""
    unsaved: str = ""
    # Why the plain call does not work, where what was captured is a wrapper.
    refused: str = ""
    unchecked: bool = False
    # The user's lines that made an exporter decide something by a size, by the key of what it decided.
    asked: dict[int, Place] = field(default_factory=dict)
    unspoiled: Callable[..., Any] | None = None

    @property
    def fixes_arguments(self) -> bool:
        """Whether it takes the arguments of its example, no fewer: all but those that keep the signature."""
        return self.method not in ("jit.script", *BACKENDS)

    @property
    def fixes_mode(self) -> bool:
        """Whether train and eval are decided when it is made, whatever is called later."""
        return self.method not in ("jit.script", *BACKENDS)

    def run(self, subject: Subject, plan: Plan) -> Outcome:
        subject.reset()
        moved = plan.double or plan.training is not None
        kept, self.unspoiled = None if moved else self.unspoiled, None
        try:
            with quiet():
                module = plan.prepared(kept or self.fresh())
                if plan.training is not None and hasattr(self.artifact, "module"):
                    # Exported modules have no mode to be switched; copies of them forget to say so.
                    self.artifact.module().train(plan.training)
        except NotImplementedError as error:
            return Outcome(error=error)
        before = tensors_of(module)
        outcome = run_calls(self.function(module, subject), subject, plan)
        outcome.state = tensors_of(module)
        if not moved and outcome.error is None and self.writes_nothing and _same_state(before, outcome.state):
            self.unspoiled = module
        return outcome

    @cached_property
    def writes_nothing(self) -> bool:
        """Whether a run can leave traces only in parameters and buffers, so that the next may use the same copy."""
        return self.method not in BACKENDS and not has_writes(self.artifact)

    def function(self, module: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
        if not self.bound:
            return module

        def call(*args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves((args, kwargs))
            return module(*(leaves[i] for i in subject.tensors))

        return call

    def state_names(self, subject: Subject) -> dict[str, str]:
        prefix = "model." if self.bound else ""
        names = [name for name, _ in subject.model.named_parameters()]
        names += [name for name, _ in subject.model.named_buffers()]
        return {name: prefix + name for name in names}


# Python code inside (`^Name(`) and attributes that are set; lists that are attributes; tensors that are constants.
_SETS = re.compile(r"\^\w+\(|prim::SetAttr")
_LISTS, _LIST_ATTRIBUTES = (
    re.compile(r"aten::(append|_set_item|insert|extend|pop|clear|Delete)\("),
    re.compile(r"(\]|Dict\(.*\)) = prim::GetAttr"),
)
_TENSOR_ATTRIBUTES = re.compile(r'(?:Tensor|\)) = prim::GetAttr\[name="(\w+)"\]')
_IN_PLACE, _TENSOR_CONSTANTS = re.compile(r"aten::[a-z]\w*_\("), re.compile(r"(Tensor|\)) = prim::Constant")


def _script_writes(graph: str, seen: set[str]) -> bool:
    """Parameters and buffers, whose names are given, do not count: their change is seen after the run."""
    if _SETS.search(graph) or (_LISTS.search(graph) and _LIST_ATTRIBUTES.search(graph)):
        return True
    hidden = set(_TENSOR_ATTRIBUTES.findall(graph)) - seen
    return bool(_IN_PLACE.search(graph) and (hidden or _TENSOR_CONSTANTS.search(graph)))


def has_writes(artifact: Any) -> bool:
    """Whether a run of a capture may leave something behind other than in parameters and buffers."""
    try:
        if hasattr(artifact, "inlined_graph"):
            seen = {name.rpartition(".")[2] for name in tensors_of(artifact)}
            return _script_writes(str(artifact.inlined_graph), seen)
        graphs = [m.graph for m in artifact.graph_module.modules() if hasattr(m, "graph")]
        return any(_writes(node) for graph in graphs for node in graph.nodes)
    except Exception:
        return True


def _writes(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def _same_state(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return all(name in after and identical(value, after[name]) for name, value in before.items())


class Bound(torch.nn.Module):  # type: ignore[misc]
    """The model with everything but its tensors fixed: tensors in, tensors out, as tracing wants it."""

    def __init__(self, model: torch.nn.Module, subject: Subject) -> None:
        super().__init__()
        self.model = model
        self._bound = (list(subject.leaves), list(subject.tensors), subject.spec)

    def forward(self, *tensors: torch.Tensor) -> Any:
        fixed, where, spec = self._bound
        leaves = list(fixed)
        for index, tensor in zip(where, tensors, strict=True):
            leaves[index] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        found = [leaf for _, leaf in flatten(self.model(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
        return found[0] if len(found) == 1 else tuple(found)


def saved(module: Any) -> tuple[Callable[[], Any], str]:
    """A TorchScript module by way of its bytes: what will be deployed, untouched by earlier runs.

    What cannot be saved (it calls Python) is copied; the reason is told.
    """
    stream = io.BytesIO()
    try:
        torch.jit.save(module, stream)
        data = stream.getvalue()
        torch.jit.load(io.BytesIO(data))
    except Exception as error:
        return _copies(module), one_line(error)
    return lambda: torch.jit.load(io.BytesIO(data)), ""


def _copies(module: Any) -> Callable[[], Any]:
    try:
        copy.deepcopy(module)
    except Exception:
        return lambda: module
    return lambda: copy.deepcopy(module)


def _needs_binding(subject: Subject) -> bool:
    return bool(subject.kwargs) or not all(isinstance(a, torch.Tensor) for a in subject.args)


def _trace(subject: Subject, model: torch.nn.Module) -> Captured:
    try:
        return _traced(subject, model)
    except (torch.jit.TracingCheckError, RuntimeError) as error:
        # State or chance: torch's own check refuses or fails, and without it people trace it all the same.
        differing = isinstance(error, torch.jit.TracingCheckError)
        refused = "two runs of forward with the same input were not the same" if differing else one_line(error)
        try:
            return _traced(subject, subject.fresh(), refused)
        except Exception:
            raise error from None


def _traced(subject: Subject, model: torch.nn.Module, unchecked: str = "") -> Captured:
    args, _ = subject.inputs()
    bound = _needs_binding(subject)
    refused = unchecked or ("it takes tensors alone, by position" if bound else "")
    options = {"check_trace": False} if unchecked else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seed_everything(subject.seed)
        if not bound:
            try:
                traced = torch.jit.trace(model, args, **options)
            except RuntimeError as error:
                if not _about_output_types(error):
                    raise
                bound, refused = True, one_line(error)
        if bound:
            leaves = pytree.tree_leaves(subject.inputs())
            tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
            traced = torch.jit.trace(Bound(model, subject), tensors, **options)
    kept = settled(subject, tensors_of(model))
    changed = _restore(subject.model, model, kept)
    _restore_capture(subject.model, traced, "model." if bound else "", kept)
    fresh, unsaved = saved(traced)
    seen = [(w.filename, w.lineno, str(w.message)) for w in caught if "TracerWarning" in w.category.__name__]
    return Captured(
        "jit.trace",
        fresh,
        traced,
        bound=bound,
        only_tensors=bound,
        warnings=seen,
        can_widen=fresh() is not traced,
        live_changes=changed,
        unsaved=unsaved,
        refused=refused,
        unchecked=bool(unchecked),
        settled=kept,
    )


def settled(subject: Subject, after: dict[str, torch.Tensor]) -> list[str]:
    """What tracing has changed and one more call of the model would not: a mask that is multiplied into a weight.

    Whoever traces has it as tracing left it, in the module and in the trace.
    """
    before = tensors_of(subject.model)
    changed = [n for n, value in after.items() if n in before and not identical(before[n], value)]
    if not changed:
        return []
    model = subject.fresh()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name in after and _alike(after[name], tensor):
                tensor.detach().copy_(after[name])
    if run_calls(model, subject, subject.plan()).error is not None:
        return []
    now = tensors_of(model)
    return [name for name in changed if name in now and identical(now[name], after[name])]


def with_old_values(captured: Captured, subject: Subject) -> Captured:
    """The capture into which the model's own values are loaded, also where capturing has changed them."""
    names, start = captured.state_names(subject), tensors_of(subject.model)

    def loaded() -> Any:
        module: Any = captured.fresh()
        inside = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name in captured.settled:
                inside[names[name]].copy_(start[name])
        return module

    return replace(captured, fresh=loaded, settled=[], unspoiled=None)


def _restore(pristine: torch.nn.Module, used: torch.nn.Module, kept: list[str]) -> list[str]:
    """Tracing runs the model several times; give its tensors, which the trace shares, their old values, but for some.

    Tells which had changed.
    """
    changed = []
    modules = dict(used.named_modules())
    with torch.no_grad():
        for path, module in pristine.named_modules():
            other = modules.get(path)
            for store in ("_parameters", "_buffers", "__dict__"):
                values = getattr(module, store)
                for name, value in values.items():
                    now = getattr(other, store, {}).get(name)
                    if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor) and _alike(value, now):
                        full = f"{path}.{name}".lstrip(".")
                        if not identical(value, now):
                            changed.append(full)
                        if full not in kept:
                            now.detach().copy_(value.detach())
    return changed


def _restore_capture(pristine: torch.nn.Module, traced: Any, prefix: str, kept: list[str]) -> None:
    """What the model bound anew while it was traced, the trace still has as it was: written to, too."""
    start = tensors_of(pristine)
    with torch.no_grad():
        for source in ("named_parameters", "named_buffers"):
            for name, tensor in getattr(traced, source, list)():
                value = start.get(name.removeprefix(prefix))
                if value is not None and name.removeprefix(prefix) not in kept and _alike(value, tensor):
                    tensor.detach().copy_(value)


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and type(b).__name__ != "FakeTensor"


def _about_output_types(error: RuntimeError) -> bool:
    text = str(error)
    return any(
        part in text
        for part in (
            "Only tensors, lists, tuples of tensors",
            "Encountering a dict at the output of the tracer",
            "Encountering a list at the output of the tracer",
            "Tracer cannot infer type of",
            "cannot be traced, only tensors",
        )
    )


def _script(subject: Subject, model: torch.nn.Module) -> Captured:
    # A function is scripted as such: as a method it would be given the module.
    scripted = torch.jit.script(getattr(model, "_function", model))
    fresh, unsaved = saved(scripted)
    return Captured("jit.script", fresh, scripted, can_widen=fresh() is not scripted, unsaved=unsaved)


def dynamic_shapes(subject: Subject, varying: dict[int, list[int]]) -> Any:
    """What `torch.export` wants to know of dimensions, in the structure of the inputs."""
    dim = torch.export.Dim
    specs: list[Any] = [None] * len(subject.leaves)
    for index in subject.tensors:
        specs[index] = dict.fromkeys(varying.get(index, []), dim.AUTO) or None
    args, kwargs = pytree.tree_unflatten(specs, subject.spec)
    parameters = subject.signature.parameters.values() if subject.signature else []
    if not kwargs and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return tuple(args)
    if subject.signature is None:
        return None
    try:
        bound = subject.signature.bind(*args, **kwargs)
    except TypeError:
        return None
    return dict(bound.arguments)


def _export(
    subject: Subject,
    model: torch.nn.Module,
    example: list[Any],
    varying: dict[int, list[int]],
    strict: bool,
    name: str,
) -> Captured:
    args, kwargs = subject.inputs(example)
    shapes = dynamic_shapes(subject, varying) if varying else None
    asked: dict[int, Place] = {}
    with compat_capture.asking(lambda key: asked.update((key, place) for place in user_places(1))):
        program = torch.export.export(model, args, kwargs or None, dynamic_shapes=shapes, strict=strict)
    fresh = graph_copies(program)
    return Captured(name, fresh, program, example=example, dynamic=shapes, asked=asked, can_widen=True)


def graph_copies(program: Any) -> Callable[[], Any]:
    """The exported module as it was made, for every run anew."""
    module = program.module()
    try:
        copy.deepcopy(module)
    except Exception:
        return lambda: program.module()
    return lambda: copy.deepcopy(module)


def _onnx(subject: Subject, model: torch.nn.Module, example: list[Any], varying: dict[int, list[int]]) -> Captured:
    args, kwargs = subject.inputs(example)
    shapes = dynamic_shapes(subject, varying) if varying else None
    program = torch.onnx.export(model, args, kwargs=kwargs or None, dynamo=True, dynamic_shapes=shapes, verbose=False)
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    runner = OnnxRunner(program.model_proto.SerializeToString())
    return Captured(
        "onnx",
        lambda: runner,
        program,
        only_tensors=True,
        tolerance=Tolerance(1e-3, 1e-4),
        example=example,
        dynamic=shapes,
    )


def _compile(subject: Subject, model: torch.nn.Module, method: str) -> Captured:
    def fresh() -> Any:
        torch._dynamo.reset()
        return torch.compile(subject.fresh(), backend=BACKENDS[method])

    args, kwargs = subject.inputs()
    torch.compile(model, backend=BACKENDS[method])(*args, **kwargs)
    return Captured(method, fresh)


def capture(
    method: str,
    subject: Subject,
    model: torch.nn.Module,
    example: list[Any],
    varying: dict[int, list[int]],
    limit: float,
) -> Captured:
    """Capture `model`, which may be changed by it, by one method; raises what torch raises."""
    seed_everything(subject.seed)
    with quiet(), time_limit(limit):
        if method == "jit.trace":
            return _trace(subject, model)
        if method == "jit.script":
            return _script(subject, model)
        if method == "onnx":
            return _onnx(subject, model, example, varying)
        if method in BACKENDS:
            return _compile(subject, model, method)
        if method == "export-static":
            return _export(subject, model, subject.leaves, {}, False, method)
        return _export(subject, model, example, varying, method == "export-strict", method)

"""Checking a capture on the spot, as the user's program makes it.

    before = before_capture(kind, args, kwargs)          # cheap, optional: the model as it was
    result = torch.jit.trace(*args, **kwargs)            # the program's own call, or the error it raised
    findings = on_the_spot(kind, torch.jit.trace, args, kwargs, result, before=before)

Works on copies, puts random state back, takes a few seconds at most, and never raises.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchsan.errors import UsageError
from torchsan.model import Finding
from torchsan.verify.api import FunctionModule
from torchsan.verify.compare import Tolerance
from torchsan.verify.frames import calling_place
from torchsan.verify.hunt import Trial, attribute_changes, check, tensor_changes
from torchsan.verify.judging import Judge
from torchsan.verify.methods import Captured, graph_copies, saved, settled
from torchsan.verify.subject import Subject, attributes_of, quiet, random_state_kept, tensors_of
from torchsan.verify.timing import now
from torchsan.verify.truth import Truth

KINDS = {
    "torch.jit.trace": "jit.trace",
    "torch.jit.script": "jit.script",
    "torch.export.export": "export",
    "torch.onnx.export": "onnx",
}
MOST_PARAMETERS = 50_000_000


@dataclass(frozen=True)
class Before:
    """The model as it was before the program captured it."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class _Call:
    """The parts of a capturing call that matter."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic: Any = None


def _method(kind: str) -> str:
    return KINDS.get(kind, kind)


def _tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _parsed(method: str, original: Callable[..., Any] | None, args: Any, kwargs: Any) -> _Call | None:
    """Model and example inputs out of the arguments of the capturing function."""
    values = _bound(method, original, args, kwargs)
    if method == "jit.trace":
        inputs, named = values.get("example_inputs"), values.get("example_kwarg_inputs")
        return _Call(values.get("func"), _tuple(inputs), dict(named or {}))
    if method == "jit.script":
        inputs = values.get("example_inputs")
        return _Call(values.get("obj"), _tuple(inputs), {}) if isinstance(inputs, list | tuple) else None
    if method == "export":
        return _Call(
            values.get("mod"),
            _tuple(values.get("args")),
            dict(values.get("kwargs") or {}),
            values.get("dynamic_shapes"),
        )
    if method == "onnx":
        given, named = _tuple(values.get("args")), dict(values.get("kwargs") or {})
        if given and isinstance(given[-1], dict):
            given, named = given[:-1], given[-1]
        return _Call(values.get("model"), given, named, values.get("dynamic_shapes") or values.get("dynamic_axes"))
    return None


_POSITIONS = {
    "jit.trace": ("func", "example_inputs"),
    "jit.script": ("obj",),
    "export": ("mod", "args", "kwargs"),
    "onnx": ("model", "args", "f"),
}


def _bound(method: str, original: Callable[..., Any] | None, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        if original is not None:
            return dict(inspect.signature(original).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        pass
    return {**dict(zip(_POSITIONS[method], args, strict=False)), **kwargs}


def before_capture(kind: str, args: Any, kwargs: Any) -> Before | None:
    """A copy of what is about to be captured; None when it cannot or should not be copied."""
    try:
        call = _parsed(_method(kind), None, args, kwargs)
        if call is None or not callable(call.model) or not _small(call.model):
            return None
        with random_state_kept(), quiet():
            return Before(copy.deepcopy(call.model), copy.deepcopy(call.args), copy.deepcopy(call.kwargs))
    except Exception:
        return None


def _small(model: Any) -> bool:
    return not isinstance(model, torch.nn.Module) or sum(p.numel() for p in model.parameters()) <= MOST_PARAMETERS


def on_the_spot(
    kind: str,
    original_callable: Callable[..., Any] | None,
    args: Any,
    kwargs: Any,
    result: Any,
    *,
    before: Before | None = None,
    seconds: float = 10.0,
) -> list[Finding]:
    """Findings on a capture that the program has just made (`result`, or the exception that it raised)."""
    try:
        with random_state_kept():
            return _checked(_method(kind), original_callable, args, kwargs, result, before, seconds)
    except Exception:
        # A check that cannot be made says nothing: the program must not notice it.
        return []


def _checked(
    method: str,
    original: Callable[..., Any] | None,
    args: Any,
    kwargs: Any,
    result: Any,
    before: Before | None,
    seconds: float,
) -> list[Finding]:
    call = _parsed(method, original, args, kwargs)
    if call is None or not callable(call.model) or not _small(call.model):
        return []
    if isinstance(call.model, torch.jit.ScriptModule):
        return []
    given = before or Before(call.model, call.args, call.kwargs)
    model = given.model if isinstance(given.model, torch.nn.Module) else FunctionModule(given.model)
    subject = Subject(model, given.args, given.kwargs, limit=max(1.0, seconds / 4))
    subject.home = subject.capture = calling_place()
    started = now()
    deadline = started + seconds
    truth = Truth(subject, started + seconds * 0.5)
    try:
        truth.establish()
    except UsageError:
        return []
    truth.explore(values=12, sizes=60)
    trial = Trial(method)
    if isinstance(result, BaseException):
        trial.error = result
    else:
        trial.captured = _captured(method, result, subject, call.dynamic)
        if trial.captured is None:
            return []
        _keep_what_was_promised(method, call.dynamic, truth)
        check(trial, truth, deadline)
    if before is not None and isinstance(call.model, torch.nn.Module) and isinstance(before.model, torch.nn.Module):
        trial.changes = tensor_changes(tensors_of(before.model), tensors_of(call.model))
        trial.changes += attribute_changes(attributes_of(before.model), attributes_of(call.model))
    judge = Judge(truth, deadline)
    judge.trial(trial)
    subject.reset()
    return judge.judgement([trial]).findings


def _keep_what_was_promised(method: str, dynamic: Any, truth: Truth) -> None:
    """An export promises the sizes of its example, and those that it declares dynamic: no others."""
    if method not in ("export", "onnx"):
        return
    promised = _declared(truth.subject, dynamic)
    kept = {d.label for d in truth.sizes.dimensions if all(dim in promised.get(leaf, ()) for leaf, dim in d.axes)}
    truth.pairs = [(v, outcome) for v, outcome in truth.pairs if v.kind != "size" or v.dimension in kept]


def _declared(subject: Subject, dynamic: Any) -> dict[int, list[int]]:
    """Which dimensions of which input were declared dynamic; nested inputs are taken as fixed."""
    if isinstance(dynamic, tuple | list):
        specs = dict(enumerate(dynamic))
    elif isinstance(dynamic, dict):
        specs = {subject.names.index(name): spec for name, spec in dynamic.items() if name in subject.names}
    else:
        return {}
    found = {}
    for index, spec in specs.items():
        if isinstance(spec, dict):
            found[index] = [dim for dim, kind in spec.items() if kind is not None and kind != torch.export.Dim.STATIC]
        elif isinstance(spec, tuple | list):
            found[index] = [dim for dim, kind in enumerate(spec) if kind is not None]
    return found


def _captured(method: str, result: Any, subject: Subject, dynamic: Any) -> Captured | None:
    if method in ("jit.trace", "jit.script"):
        with quiet():
            fresh, _ = saved(result)
        kept = settled(subject, tensors_of(result))
        start = {name: value for name, value in tensors_of(subject.model).items() if name not in kept}

        def restored() -> Any:
            module = fresh()
            now = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            with torch.no_grad():
                for name, value in start.items():
                    if name in now and now[name].shape == value.shape:
                        now[name].copy_(value)
            return module

        return Captured(method, restored if hasattr(result, "named_parameters") else fresh, result, settled=kept)
    if method == "export" and hasattr(result, "module"):
        with quiet():
            return Captured(method, graph_copies(result), result, dynamic=dynamic)
    if method == "onnx" and hasattr(result, "model_proto"):
        from torchsan.verify.onnx_runner import OnnxRunner

        runner = OnnxRunner(result.model_proto.SerializeToString())
        return Captured(method, lambda: runner, result, only_tensors=True, tolerance=Tolerance(1e-3, 1e-4))
    return None

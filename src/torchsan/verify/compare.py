"""Do two runs agree? Outputs as trees, dtypes, and what is left behind in inputs and state."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from torchsan.verify.subject import Outcome, one_line

# The names of exceptions before the words: TorchScript hands on what Python raised, with both names.
_RAISED = re.compile(r"(?:\w+(?:Error|Exception): )+")
Kind = Literal["raises", "structure", "shape", "dtype", "values", "input", "state"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a capture departs from eager."""

    kind: Kind
    where: str
    text: str

    @property
    def is_effect(self) -> bool:
        return self.kind in ("input", "state")


@dataclass(frozen=True, slots=True)
class Tolerance:
    rtol: float = 1e-4
    atol: float = 1e-5

    def for_dtype(self, dtype: torch.dtype) -> tuple[float, float]:
        if dtype in (torch.float16, torch.bfloat16):
            return max(self.rtol, 2e-2), max(self.atol, 2e-2)
        return self.rtol, self.atol


def flatten(value: Any, path: str = "output", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Leaves with their paths: dicts, sequences, dataclasses, model outputs; None is no leaf."""
    if value is None or depth > 12:
        return
    if isinstance(value, Mapping):
        for key in value:
            yield from flatten(value[key], f"{path}[{key!r}]", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from flatten(getattr(value, item.name, None), f"{path}.{item.name}", depth + 1)
    elif isinstance(value, list | tuple | torch.Size):
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}[{index}]", depth + 1)
    elif type(value).__module__.startswith("transformers.") and hasattr(value, "to_legacy_cache"):
        yield from flatten(value.to_legacy_cache(), path, depth + 1)
    elif isinstance(value, torch.Tensor | bool | int | float | complex | str):
        yield path, value
    elif hasattr(value, "__dict__") and vars(value) and not isinstance(value, type | torch.nn.Module):
        for name, item in vars(value).items():
            yield from flatten(item, f"{path}.{name}", depth + 1)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_nested:
        return tensor.to_padded_tensor(0.0)
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def tensor_difference(where: str, want: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> Difference | None:
    if want.shape != got.shape:
        return Difference("shape", where, f"{where} has shape {list(got.shape)} instead of {list(want.shape)}")
    if want.dtype != got.dtype:
        return Difference("dtype", where, f"{where} is {got.dtype} instead of {want.dtype}")
    if want.numel() == 0 or want.is_meta:
        return None
    a, b = _dense(want.detach()).cpu(), _dense(got.detach()).cpu()
    if torch.equal(a, b):
        # Nearly always so, and an order of magnitude cheaper than what follows.
        return None
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        index = int((a != b).flatten().nonzero()[0])
        return Difference("values", where, _values(where, a.flatten()[index], b.flatten()[index]))
    rtol, atol = tolerance.for_dtype(a.dtype)
    wide = torch.complex128 if a.dtype.is_complex else torch.float64
    a, b = a.to(wide).flatten(), b.to(wide).flatten()
    finite = a.abs()[torch.isfinite(a.abs())]
    scale = min(1.0, float(finite.max())) if finite.numel() else 1.0
    far = ~torch.isclose(b, a, rtol=rtol, atol=atol * scale, equal_nan=True)
    if not bool(far.any()):
        return None
    gap = (a - b).abs().nan_to_num(float("inf"), float("inf"))
    index = int((gap * far).nan_to_num(0.0).argmax())
    return Difference("values", where, _values(where, a[index], b[index]))


def _values(where: str, want: torch.Tensor, got: torch.Tensor) -> str:
    return f"{where} is {got.item():.6g} instead of {want.item():.6g}"


def value_difference(where: str, want: Any, got: Any, tolerance: Tolerance) -> Difference | None:
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        return tensor_difference(where, want, got, tolerance)
    plain = [v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for v in (want, got)]
    if isinstance(plain[0], torch.Tensor) or isinstance(plain[1], torch.Tensor):
        return Difference("structure", where, f"{where} is {type(got).__name__}, not {type(want).__name__}")
    if isinstance(plain[0], float) and isinstance(plain[1], float):
        pair = [torch.tensor(v, dtype=torch.float64) for v in plain]
        return tensor_difference(where, pair[0], pair[1], tolerance)
    if plain[0] == plain[1]:
        return None
    return Difference("values", where, f"{where} is {plain[1]!r} instead of {plain[0]!r}")


def outputs_difference(want: Any, got: Any, tolerance: Tolerance, *, only_tensors: bool) -> Difference | None:
    wanted, gotten = list(flatten(want)), list(flatten(got))
    if only_tensors:
        # ONNX and graphs return tensors alone; constants among the results are not theirs to return. What is a number
        # to eager and a tensor to them (a size) is.
        pair = [[item for item in items if isinstance(item[1], torch.Tensor)] for items in (wanted, gotten)]
        if len(pair[0]) == len(pair[1]) or len(wanted) != len(gotten):
            wanted, gotten = pair
    if len(wanted) != len(gotten):
        return Difference("structure", "output", f"returns {len(gotten)} values instead of {len(wanted)}")
    for (where, a), (_, b) in zip(wanted, gotten, strict=True):
        found = value_difference(where, a, b, tolerance)
        if found:
            return found
    return None


def made_tensors(want: Any, got: Any) -> list[str]:
    """Results that are plain numbers in eager and tensors in the capture: equal in value, not in what can be done with
    them (`range(n)`, a key of a dictionary)."""
    pairs = zip(flatten(want), flatten(got), strict=False)
    return [where for (where, a), (_, b) in pairs if isinstance(b, torch.Tensor) and not isinstance(a, torch.Tensor)]


def _effects_difference(
    want: Outcome, got: Outcome, names: list[str], state: dict[str, str], tolerance: Tolerance
) -> Difference | None:
    for name, a, b in zip(names, want.inputs, got.inputs, strict=False):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            found = tensor_difference(name, a, b, tolerance)
            if found:
                return Difference("input", name, f"after the call, input `{name}`: {found.text}")
    for ours, theirs in state.items():
        if ours in want.state and theirs in got.state:
            found = tensor_difference(ours, want.state[ours], got.state[theirs], tolerance)
            if found:
                return Difference("state", ours, f"after the call, `{ours}`: {found.text}")
    return None


def difference(
    want: Outcome,
    got: Outcome,
    tolerance: Tolerance,
    *,
    names: list[str] | None = None,
    state: dict[str, str] | None = None,
    only_tensors: bool = False,
) -> Difference | None:
    """The first way in which `got` departs from `want`, the run in eager mode."""
    if got.error is not None:
        return Difference("raises", "", f"raises {type(got.error).__name__}: {last_line(got.error)}")
    for number, (a, b) in enumerate(zip(want.outputs, got.outputs, strict=True), 1):
        found = outputs_difference(a, b, tolerance, only_tensors=only_tensors)
        if found:
            call = f" on call {number}" if len(want.outputs) > 1 else ""
            return Difference(found.kind, found.where, found.text + call)
    return _effects_difference(want, got, names or [], state or {}, tolerance)


def last_line(error: BaseException) -> str:
    """TorchScript puts the reason behind its own traceback, and what called Python behind that; others first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("The following operation failed in the TorchScript"):
        reasons = [line for line in lines if _RAISED.match(line)]
        return one_line(_RAISED.sub("", (reasons or lines)[-1]))
    return one_line(error)


def is_finite(outcome: Outcome) -> bool:
    for output in outcome.outputs:
        for _, leaf in flatten(output):
            floats = isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
            if floats and not leaf.is_meta and not bool(torch.isfinite(_dense(leaf)).all()):
                return False
    return True

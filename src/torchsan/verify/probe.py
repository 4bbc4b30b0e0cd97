"""Watch a model turn tensors into Python values, the points at which every capture freezes something.

While torch traces, sizes are tensors too, so that the same few methods of `Tensor` see read-outs of values
and of shapes. A read-out can be made to give the value of another run: what a capture does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from torchsan.model import Place
from torchsan.model.capture_events import ReadOut
from torchsan.verify.compare import flatten
from torchsan.verify.frames import Use, text_of, use_at, user_places
from torchsan.verify.subject import Outcome, Subject, quiet, seed_everything, time_limit

KINDS = {
    "__bool__": "bool",
    "__int__": "int",
    "__index__": "index",
    "__float__": "float",
    "__complex__": "complex",
    "item": "item",
    "tolist": "tolist",
    "numpy": "numpy",
    "__array__": "numpy",
    "__len__": "len",
    "__iter__": "iter",
    "__contains__": "in",
}
# Functions of torch that answer with a Python truth value.
QUESTIONS = ("equal", "allclose", "is_nonzero")
Key = tuple[str, int, int, str]


@dataclass
class Site:
    """One read-out in one run."""

    kind: str
    source: Literal["data", "shape"]
    places: list[Place]
    value: Any

    @property
    def key(self) -> Key:
        at = self.places[0]
        return (at.path, at.line, at.column, self.kind)

    def read_out(self, before: Any, after: Any) -> ReadOut:
        place = self.places[0]
        return ReadOut(
            kind=self.kind,
            source=self.source,
            use=self._use(place),
            place=place,
            text=text_of(place),
            before=short(before),
            after=short(after),
            callers=tuple(self.places[1:]),
        )

    def _use(self, place: Place) -> Use:
        if self.kind == "iter":
            return "loop"
        if self.kind in ("numpy", "tolist"):
            return use_at(place) or "array"
        return use_at(place) or ("branch" if self.kind in ("bool", "in") else "number")


@dataclass
class Recording:
    sites: list[Site] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def by_key(self) -> dict[Key, list[Site]]:
        found: dict[Key, list[Site]] = {}
        for site in self.sites:
            found.setdefault(site.key, []).append(site)
        return found


def short(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 40 else text[:39] + "…"


def same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


def _from_shape(tensor: torch.Tensor) -> bool:
    """Whether a traced number was computed from sizes alone."""
    if tensor.dim() or torch._C._get_tracing_state() is None:
        # Asking for the trace of a tensor outside of tracing is a segmentation fault.
        return False
    try:
        todo = [torch._C._get_value_trace(tensor).node()]
        seen = 0
        found = False
        while todo and seen < 200:
            node = todo.pop()
            seen += 1
            kind = node.kind()
            if kind in ("aten::size", "prim::shape", "aten::numel"):
                found = True
                continue
            if kind in ("prim::Param", "prim::GetAttr"):
                return False
            todo.extend(value.node() for value in node.inputs())
        return found
    except Exception:
        return False


class Recorder:
    """Replaces the read-out methods of Tensor for as long as the context lasts."""

    def __init__(self, force: dict[Key, list[Any]] | None = None) -> None:
        self.recording = Recording()
        self.force = force or {}
        self.used: dict[Key, int] = {}
        self.inside = False
        self.limit = 20_000

    def _wrapper(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self.inside or len(self.recording.sites) >= self.limit:
                return original(tensor, *args, **kwargs)
            self.inside = True
            try:
                places = user_places()
                if not places:
                    return original(tensor, *args, **kwargs)
                return self._read(kind, original, tensor, places, args, kwargs)
            finally:
                self.inside = False

        return read

    def _read(
        self,
        kind: str,
        original: Callable[..., Any],
        tensor: torch.Tensor,
        places: list[Place],
        args: Any,
        kwargs: Any,
    ) -> Any:
        by_shape = kind in ("len", "iter") or _from_shape(tensor)
        site = Site(kind, "shape" if by_shape else "data", places, None)
        result = original(tensor, *args, **kwargs)
        if kind == "iter":
            result = list(result)
            site.value = len(result)
        else:
            site.value = result.copy() if kind == "numpy" and hasattr(result, "copy") else result
        self.recording.sites.append(site)
        result = self._forced(site, result)
        return iter(result) if kind == "iter" else result

    def _forced(self, site: Site, result: Any) -> Any:
        values = self.force.get(site.key)
        if values is None:
            return result
        index = self.used.get(site.key, 0)
        self.used[site.key] = index + 1
        value = values[min(index, len(values) - 1)]
        if site.kind != "iter":
            return value
        if value > len(result):
            raise IndexError(f"{value} rows wanted, {len(result)} there")
        return result[:value]

    @contextlib.contextmanager
    def active(self) -> Iterator[Recording]:
        targets: list[tuple[Any, str, str]] = [(torch.Tensor, name, kind) for name, kind in KINDS.items()]
        targets += [(owner, name, "bool") for owner in (torch, torch.Tensor) for name in QUESTIONS]
        targets = [(owner, name, kind) for owner, name, kind in targets if hasattr(owner, name)]
        kept = [(owner, name, vars(owner).get(name)) for owner, name, _ in targets]
        try:
            for owner, name, kind in targets:
                setattr(owner, name, self._wrapper(kind, getattr(owner, name)))
            yield self.recording
        finally:
            for owner, name, original in kept:
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)


class _Watched(torch.nn.Module):  # type: ignore[misc]
    """Keeps what the model returned, and gives the tracer something that it can hold."""

    def __init__(self, model: torch.nn.Module, subject: Subject, leaves: list[Any]) -> None:
        super().__init__()
        self.model = model
        self._given = (subject, leaves, [])  # type: ignore[var-annotated]

    def forward(self, *tensors: torch.Tensor) -> Any:
        subject, leaves, kept = self._given
        values = list(leaves)
        for index, tensor in zip(subject.tensors, tensors, strict=True):
            values[index] = tensor
        args, kwargs = pytree.tree_unflatten(values, subject.spec)
        out = self.model(*args, **kwargs)
        kept.append(pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, out))
        found = [leaf for _, leaf in flatten(out) if isinstance(leaf, torch.Tensor)]
        return tuple(found) if found else tensors[0] + 0 if tensors else torch.zeros(())


def probe(
    subject: Subject,
    leaves: list[Any],
    *,
    seed: int,
    tracing: bool = True,
    force: dict[Key, list[Any]] | None = None,
    double: bool = False,
    calls: int = 1,
) -> Recording:
    """Run a fresh copy once (under the tracer, so that sizes count) and record its read-outs."""
    model = subject.fresh()
    if double:
        model = model.double()
    args, kwargs = subject.inputs(leaves)
    values = pytree.tree_leaves((args, kwargs))
    watched = _Watched(model, subject, values)
    tensors = tuple(values[i] for i in subject.tensors)
    recorder = Recorder(force)
    recording = recorder.recording
    seed_everything(seed)
    try:
        with quiet(), time_limit(subject.limit), recorder.active():
            if tracing and tensors:
                torch.jit.trace(watched, tensors, check_trace=False, strict=False)
            else:
                for _ in range(calls):
                    watched(*tensors)
    except (Exception, SystemExit) as error:
        if not watched._given[2]:
            recording.outcome.error = error
    recording.outcome.outputs = list(watched._given[2])[:calls]
    return recording

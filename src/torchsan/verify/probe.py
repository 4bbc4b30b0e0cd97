"""Watch a model turn tensors into Python values, the points at which every capture freezes something.

While torch traces, sizes are tensors too, so that the same few methods of `Tensor` see read-outs of values
and of shapes. A read-out can be made to give the value of another run: what a capture does.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from torchsan.model import Place
from torchsan.model.capture_events import ReadOut
from torchsan.verify.arguments import Arguments
from torchsan.verify.compare import flatten
from torchsan.verify.frames import Use, is_count, is_users, text_of, use_at, user_places
from torchsan.verify.subject import Outcome, Plan, Subject, identical, quiet, seed_everything, tensors_of
from torchsan.verify.timing import time_limit

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
# Elements of a tensor that is remembered whole.
MOST_KEPT = 1_000_000
How = Literal["tracing", "plain", "sizes", "arguments", "data"]


@dataclass
class Site:
    """One read-out in one run."""

    kind: str
    source: Literal["data", "shape"]
    places: list[Place]
    value: Any
    call: int = 0

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
            counts=self.kind in ("iter", "list") or is_count(place),
        )

    def _use(self, place: Place) -> Use:
        if self.kind in ("iter", "list"):
            return "loop" if use_at(place) == "loop" else "rows"
        if self.kind in ("numpy", "tolist", "data"):
            return use_at(place) or "array"
        return use_at(place) or ("branch" if self.kind in ("bool", "in") else "number")


@dataclass
class Recording:
    sites: list[Site] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def by_key(self, call: int | None = None) -> dict[Key, list[Site]]:
        """The read-outs of all calls, or of one, by where they are made."""
        found: dict[Key, list[Site]] = {}
        for site in self.sites:
            if call is None or site.call == call:
                found.setdefault(site.key, []).append(site)
        return found


def _kept(kind: str, value: Any) -> Any:
    """What may be written to later, as it is now."""
    if kind == "data":
        return value.clone()
    return value.copy() if kind == "numpy" and hasattr(value, "copy") else value


def short(value: Any) -> str:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        # While torch traces, sizes are tensors; nobody else calls them so.
        value = value.item()
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 40 else text[:39] + "…"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim():
        return identical(a, b)
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

    def __init__(self, force: dict[Key, list[Any]] | None = None, how: How = "plain", strict: bool = False) -> None:
        self.how = how
        # Whether a list of another length than the example's is refused, as TorchScript does when it unpacks one.
        self.strict = strict
        self.recording = Recording()
        self.force = force or {}
        self.used: dict[Key, int] = {}
        self.call = 0
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
        by_shape = kind in ("len", "iter", "size") or _from_shape(tensor)
        site = Site(kind, "shape" if by_shape else "data", places, None, self.call)
        result = original(tensor, *args, **kwargs)
        if kind == "iter":
            result = list(result)
            site.value = len(result)
        else:
            site.value = _kept(kind, result)
        self.recording.sites.append(site)
        result = self._forced(site, result)
        return iter(result) if kind == "iter" else result

    def next_call(self) -> None:
        """Every call reads the old values from the first on, as a capture does."""
        self.used.clear()

    def listed(self, result: Any) -> Any:
        places = [] if self.inside or len(self.recording.sites) >= self.limit else user_places()
        if not places:
            return result
        site = Site("list", "shape", places, len(result), self.call)
        self.recording.sites.append(site)
        return self._forced(site, result)

    def argument(self, places: list[Place], name: str, value: Any) -> Any:
        if self.inside or len(self.recording.sites) >= self.limit:
            return value
        site = Site(name, "shape", places, value, self.call)
        self.recording.sites.append(site)
        return self._forced(site, value)

    def _size_reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Sizes that the user's own line asks for; torch's Python asks for them all the time."""
        seen = self._wrapper("size", original)

        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self.inside or not is_users(sys._getframe(1).f_code.co_filename):
                return original(tensor, *args, **kwargs)
            return seen(tensor, *args, **kwargs)

        return read

    def _data_reader(self) -> property:
        """`.data` of the user's own lines, which a trace does not see: what it gives is a constant there."""
        original = vars(torch._C.TensorBase)["data"]
        seen = self._wrapper("data", original.__get__)

        def read(tensor: torch.Tensor) -> Any:
            if self.inside or tensor.numel() > MOST_KEPT or not is_users(sys._getframe(1).f_code.co_filename):
                return original.__get__(tensor)
            return seen(tensor)

        return property(read, original.__set__)

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        found: list[tuple[Any, str, Any]] = []
        owners = [(torch.Tensor, name, kind) for name, kind in KINDS.items()]
        owners += [(owner, name, "bool") for owner in (torch, torch.Tensor) for name in QUESTIONS]
        for owner, name, kind in owners:
            if hasattr(owner, name):
                found.append((owner, name, self._wrapper(kind, getattr(owner, name))))
        if self.how == "sizes":
            tensor = torch.Tensor
            found += [(tensor, name, self._size_reader(getattr(tensor, name))) for name in ("size", "numel")]
            found.append((tensor, "shape", property(self._size_reader(lambda t: torch._C.TensorBase.size(t)))))
        if self.how == "data":
            found.append((torch.Tensor, "data", self._data_reader()))
        return found

    def _forced(self, site: Site, result: Any) -> Any:
        values = self.force.get(site.key)
        if values is None:
            return result
        index = self.used.get(site.key, 0)
        self.used[site.key] = index + 1
        value = values[min(index, len(values) - 1)]
        if site.kind not in ("iter", "list"):
            return _kept(site.kind, value)
        if value > len(result) or (self.strict and value != len(result)):
            raise RuntimeError(f"Expected {value} elements in a list but found {len(result)}")
        return result[:value]

    @contextlib.contextmanager
    def active(self) -> Iterator[Recording]:
        replacements = self._replacements()
        kept = [(owner, name, vars(owner).get(name)) for owner, name, _ in replacements]
        try:
            for owner, name, replacement in replacements:
                setattr(owner, name, replacement)
            with _Lists(self), Arguments(self.argument) if self.how == "arguments" else contextlib.nullcontext():
                yield self.recording
        finally:
            for owner, name, original in kept:
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)


class _Lists(TorchFunctionMode):  # type: ignore[misc]
    """How many tensors a function of torch gave (`split`, `unbind`): a capture keeps the number."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if type(result) in (tuple, list) and result and all(isinstance(item, torch.Tensor) for item in result):
            return self.recorder.listed(result)
        return result


class Watched(torch.nn.Module):  # type: ignore[misc]
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
    plan: Plan,
    how: How = "tracing",
    force: dict[Key, list[Any]] | None = None,
    *,
    strict: bool = False,
) -> Recording:
    """Run a fresh copy and record its read-outs: under the tracer, where sizes are read out as values are,
    plainly, or plainly with every size that the user's lines ask for, every number that they hand to torch, or every
    tensor that they take by `.data`.
    """
    model = plan.prepared(subject.fresh())
    recorder = Recorder(force, how, strict)
    outcome = recorder.recording.outcome
    seed_everything(plan.seed)
    try:
        with quiet(), time_limit(subject.limit), recorder.active():
            for number, leaves in enumerate(plan.calls):
                recorder.call = number
                recorder.next_call()
                outcome.outputs += _watched_call(subject, model, leaves, how == "tracing" and not number)
    except (Exception, SystemExit) as error:
        outcome.error = error
    outcome.state = tensors_of(model)
    return recorder.recording


def _watched_call(subject: Subject, model: torch.nn.Module, leaves: list[Any], tracing: bool) -> list[Any]:
    args, kwargs = subject.inputs(leaves)
    values = pytree.tree_leaves((args, kwargs))
    watched = Watched(model, subject, values)
    tensors = tuple(values[i] for i in subject.tensors)
    if not tracing or not tensors:
        watched(*tensors)
        return list(watched._given[2])
    try:
        torch.jit.trace(watched, tensors, check_trace=False, strict=False)
    except (Exception, SystemExit):
        # The tracer may dislike a result that the model has long computed.
        if not watched._given[2]:
            raise
    return list(watched._given[2])[:1]

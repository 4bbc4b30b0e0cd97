"""Python state that a model reads and writes, random numbers from outside torch, and writes to tensors."""

from __future__ import annotations

import contextlib
import dis
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from torchsan.model import Place
from torchsan.model.capture_events import Draw, StateUse, TensorWrite
from torchsan.model.source import shown_path, source_line
from torchsan.verify.frames import frames, is_users, place_of, text_of, user_places
from torchsan.verify.slots import Slot, copied, function_of, slots_of
from torchsan.verify.subject import (
    Outcome,
    Plan,
    Subject,
    attributes_of,
    fingerprint,
    identical,
    quiet,
    run_calls,
    seed_everything,
    tensors_of,
)
from torchsan.verify.timing import time_limit

_WRITES = {"STORE_GLOBAL", "STORE_DEREF"}
_READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST"}


@dataclass
class Visited:
    """The user's code that ran, with its globals, and the random draws outside torch."""

    codes: dict[CodeType, dict[str, Any]] = field(default_factory=dict)
    draws: list[Draw] = field(default_factory=list)
    slots: dict[object, tuple[Slot, str, Any]] = field(default_factory=dict)

    def enter(self, frame: FrameType) -> None:
        """Note a function and, before it runs, what the state outside it holds."""
        self.codes[frame.f_code] = frame.f_globals
        for slot in slots_of(frame.f_code, frame.f_globals, function_of(frame)):
            if slot.key not in self.slots:
                self.slots[slot.key] = (slot, fingerprint(slot.get()), copied(slot.get()))


def _draw_source(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, random.Random):
        return "random"
    kind = type(owner)
    if kind.__module__.startswith("numpy.random"):
        return "numpy.random"
    return ""


@contextlib.contextmanager
def visiting() -> Iterator[Visited]:
    visited = Visited()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code not in visited.codes and is_users(frame.f_code.co_filename):
            visited.enter(frame)
        elif event == "c_call" and len(visited.draws) < 50:
            source = _draw_source(arg)
            if source:
                users = next((f for f in frames(frame) if is_users(f.f_code.co_filename)), None)
                if users is not None:
                    place = place_of(users)
                    visited.draws.append(Draw(source, place, text_of(place)))

    old = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield visited
    finally:
        sys.setprofile(old)


def visit(subject: Subject) -> Visited:
    """Run the example once in eager mode and see which of the user's code runs."""
    model = subject.fresh()
    args, kwargs = subject.inputs()
    seed_everything(subject.seed)
    drawn = _numpy_state()
    with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit), visiting() as visited:
        model(*args, **kwargs)
        model(*subject.inputs()[0], **subject.inputs()[1])
    if _numpy_state() != drawn:
        visited.draws += _numpy_draw(subject)
    return visited


def _numpy_state() -> tuple[bytes, int] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    state = numpy.random.get_state()
    return state[1].tobytes(), state[2]


def _numpy_draw(subject: Subject) -> list[Draw]:
    """The line after which NumPy's global generator has moved; its functions are invisible to profilers."""
    model = subject.fresh()
    args, kwargs = subject.inputs()
    seed_everything(subject.seed)
    last, found = _numpy_state(), list[Draw]()
    lines: dict[FrameType, Place] = {}

    def watch(frame: FrameType, event: str, arg: Any) -> Any:
        if not is_users(frame.f_code.co_filename):
            return None
        if not found and event != "call" and frame in lines and _numpy_state() != last:
            found.append(Draw("numpy.random", lines[frame], text_of(lines[frame])))
        lines[frame] = _line_place(frame)
        return watch

    old = sys.gettrace()
    sys.settrace(watch)
    try:
        with quiet(), contextlib.suppress(Exception, SystemExit):
            model(*args, **kwargs)
    finally:
        sys.settrace(old)
    return found


def _line_place(frame: FrameType) -> Place:
    path = shown_path(frame.f_code.co_filename)
    text = source_line(path, frame.f_lineno)
    start = len(text) - len(text.lstrip()) + 1
    return Place(path, frame.f_lineno, start, frame.f_lineno, len(text) + 1, frame.f_code.co_qualname)


def changed_slots(visited: Visited) -> list[tuple[Slot, Any]]:
    """Slots that the visit changed, with what they held before it; they are put back."""
    changed = []
    for slot, text, value in visited.slots.values():
        if fingerprint(slot.get()) != text:
            slot.put_back(value)
            changed.append((slot, value))
    return changed


def global_use(visited: Visited, name: str) -> StateUse:
    writes: list[Place] = []
    reads: list[Place] = []
    for code in visited.codes:
        for step in dis.get_instructions(code):
            if step.argval == name and step.opname in _READS | _WRITES:
                target = writes if step.opname in _WRITES else reads
                target.append(_instruction_place(code, step))
    return StateUse(name, tuple(writes), tuple(reads), is_global=True)


def _instruction_place(code: CodeType, step: dis.Instruction) -> Place:
    at = step.positions
    line = (at.lineno if at else None) or code.co_firstlineno
    return Place(
        path=shown_path(code.co_filename),
        line=line,
        column=((at.col_offset if at else 0) or 0) + 1,
        end_line=(at.end_lineno if at else None) or line,
        end_column=((at.end_col_offset if at else 0) or 0) + 1,
        function=code.co_qualname,
    )


def changed_names(subject: Subject, plan: Plan) -> list[str]:
    """Attributes that differ after a call from before it, and parameters or buffers that are bound anew."""
    model = plan.prepared(subject.fresh())
    before, bound = attributes_of(model), _bindings(model)
    seed_everything(plan.seed)
    changed: dict[str, None] = {}
    with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit):
        for leaves in plan.calls:
            args, kwargs = subject.inputs(leaves, plan.left_out)
            model(*args, **kwargs)
            after, now = attributes_of(model), _bindings(model)
            changed.update(dict.fromkeys(n for n in after if after[n] != before.get(n)))
            changed.update(dict.fromkeys(n for n in now if now[n] is not bound.get(n)))
            before, bound = after, now
    return list(changed)


def _bindings(model: torch.nn.Module) -> dict[str, Any]:
    """Which tensor every parameter, buffer and plain attribute is bound to."""
    found = {}
    for path, module in model.named_modules():
        for store in (module._parameters, module._buffers, vars(module)):
            for name, value in store.items():
                if isinstance(value, torch.Tensor):
                    found[f"{path}.{name}" if path else name] = value
    return found


def attribute_uses(subject: Subject, names: list[str], plan: Plan) -> list[StateUse]:
    """The user's lines that read the given attributes and that bind them anew, the last binding first."""
    model = plan.prepared(subject.fresh())
    owners = {(id(module), name.rpartition(".")[2]): name for name, module in _owners(model, names)}
    reads: dict[str, list[Place]] = {name: [] for name in names}
    writes: dict[str, list[Place]] = {name: [] for name in names}
    original_get, original_set = torch.nn.Module.__getattribute__, torch.nn.Module.__setattr__

    def note(where: dict[str, list[Place]], module: Any, attribute: str) -> None:
        name = owners.get((id(module), attribute))
        if name is not None:
            places = user_places(1)
            if places and places[0] not in where[name]:
                where[name].append(places[0])

    def get(self: Any, attribute: str) -> Any:
        note(reads, self, attribute)
        return original_get(self, attribute)

    def put(self: Any, attribute: str, value: Any) -> None:
        # `self.t += 1` changes a tensor in place and then binds it to itself: nothing is bound anew.
        if not isinstance(value, torch.Tensor) or _bound_to(self, attribute) is not value:
            note(writes, self, attribute)
        original_set(self, attribute, value)

    seed_everything(plan.seed)
    torch.nn.Module.__getattribute__ = get
    torch.nn.Module.__setattr__ = put
    try:
        with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit):
            for leaves in (*plan.calls, *plan.calls)[: max(2, len(plan.calls))]:
                args, kwargs = subject.inputs(leaves, plan.left_out)
                model(*args, **kwargs)
    finally:
        del torch.nn.Module.__getattribute__
        torch.nn.Module.__setattr__ = original_set
    bound = _bindings(model)
    for name in names:
        if name in bound:
            # Of several the last is what the next call would have read.
            writes[name].reverse()
    found = [StateUse(f"self.{n.rpartition('.')[2]}", tuple(writes[n]), tuple(reads[n])) for n in names]
    return [use for use in found if use.reads or use.writes]


def _bound_to(module: torch.nn.Module, attribute: str) -> Any:
    stores = (module.__dict__.get("_parameters", {}), module.__dict__.get("_buffers", {}), module.__dict__)
    return next((store[attribute] for store in stores if attribute in store), None)


def _owners(model: torch.nn.Module, names: list[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    modules = dict(model.named_modules())
    for name in names:
        owner = modules.get(name.rpartition(".")[0])
        if owner is not None:
            yield name, owner


class _WriteWatch(TorchFunctionMode):  # type: ignore[misc]
    """Finds the first operation (or assignment to a module) after which one tensor is not what it was.

    With `undo` it takes the change back, every time that it happens on that line.
    """

    def __init__(self, current: Callable[[], torch.Tensor], undo: bool = False) -> None:
        super().__init__()
        self.current = current
        self.undo = undo
        self.value = current().detach().clone()
        self.place: Place | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.look()
        return result

    def look(self) -> None:
        if self.place is not None and not self.undo:
            return
        with torch._C.DisableTorchFunction():
            now = self.current().detach()
            if identical(now, self.value):
                return
            place = next(iter(user_places(1)), None)
            first = self.place = self.place or place
            if self.undo and place and first and (place.path, place.line) == (first.path, first.line):
                self.current().data = self.value.clone()

    @contextlib.contextmanager
    def assignments(self) -> Iterator[None]:
        original = torch.nn.Module.__setattr__

        def put(module: Any, attribute: str, value: Any) -> None:
            original(module, attribute, value)
            self.look()

        torch.nn.Module.__setattr__ = put
        try:
            yield
        finally:
            torch.nn.Module.__setattr__ = original


def _current(model: torch.nn.Module, name: str) -> Callable[[], torch.Tensor]:
    owner_name, _, leaf = name.rpartition(".")
    owner = model.get_submodule(owner_name)
    return lambda: getattr(owner, leaf)


def tensor_write(subject: Subject, kind: str, name: str, plan: Plan) -> TensorWrite:
    """The user's line that changes an input, parameter or buffer in eager mode."""
    model = plan.prepared(subject.fresh())
    args, kwargs = subject.inputs(plan.calls[0], plan.left_out)
    current, target = None, f"`{name}`"
    if kind == "input":
        tensor = pytree.tree_leaves((args, kwargs))[subject.names.index(name)]
        current, target = (lambda: tensor), f"input `{name}`"
    watch = _WriteWatch(current or _current(model, name))
    seed_everything(plan.seed)
    with quiet(), contextlib.suppress(Exception, SystemExit), time_limit(subject.limit), watch, watch.assignments():
        model(*args, **kwargs)
    return TensorWrite(target, watch.place, text_of(watch.place) if watch.place else "")


def undone_write(subject: Subject, name: str, plan: Plan, at_once: bool) -> tuple[TensorWrite, Outcome]:
    """The line that writes to a parameter or buffer, and eager without that write: at once, or after every call."""
    model = plan.prepared(subject.fresh())
    watch = _WriteWatch(_current(model, name), undo=at_once)

    def call(*args: Any, **kwargs: Any) -> Any:
        with watch, watch.assignments():
            result = model(*args, **kwargs)
        if not at_once:
            _current(model, name)().data = watch.value.clone()
        return result

    outcome = run_calls(call, subject, plan)
    outcome.state = tensors_of(model)
    return TensorWrite(f"`{name}`", watch.place, text_of(watch.place) if watch.place else ""), outcome

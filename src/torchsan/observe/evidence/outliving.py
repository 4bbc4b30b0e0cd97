"""Memory that outlives the call which writes it: the next call starts from what this one has left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.events import Event, Line, Memory, SharedDefaultWritten, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence import callers
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.holders.census import Census, Holding, Step, bases_of, defaults_of
from torchsan.observe.holders.extents import Extent, contents, extent_of, version_of
from torchsan.observe.holders.manner import SETTLED, Manner, signature
from torchsan.observe.holders.reading import next_reads
from torchsan.observe.holders.resolving import root_name, value_of
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_a, is_exactly, is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site, place_in
from torchsan.observe.tensors import memory_of

MAX_VISITS = 4096


@dataclass(frozen=True, slots=True)
class _Visit:
    """What a line did to some bytes the last time it came by, and how often their memory had been written then."""

    operands: object
    version: int | None
    changed: bool


class Outliving:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # Lines that were seen to change values without bringing in data, and lines that were seen to bring some.
        self._pure: set[Site] = set()
        self._fed: set[Site] = set()
        self._resets: set[Site] = set()
        self._handed: dict[tuple[int, Extent], int | None] = {}
        self._visits: dict[tuple[int, Extent], _Visit] = {}
        # What each stretch of memory held when an observed write had been made.
        self._left: dict[Extent, int | None] = {}

    def events_of(self, writing: Writing) -> Iterator[Event]:
        """What is to be told if the write changes values."""
        if writing.target is None:
            return
        yield from self._default(writing)
        yield from self._class_attribute(writing)
        if writing.manner is not Manner.EDITED:
            yield from self._stored(writing)

    def edits_of(self, writing: Writing) -> Iterator[Event]:
        """What is to be told of constants put into stored memory: other places each time, and the old ones stay."""
        if writing.manner is Manner.EDITED and writing.target is not None:
            yield from self._stored(writing)

    def follows(self, writing: Writing) -> bool:
        """A line that transforms stored memory through a name of its own is looked at again and again."""
        if writing.manner not in (Manner.TRANSFORMED, Manner.EDITED, Manner.ACCUMULATED):
            return False
        others = list(self._others(writing)) if isinstance(writing.written, ast.Name) else []
        # Parameters are there to be changed.
        return any(h.step.outlives for h in others) and not any(is_a(h.value, torch.nn.Parameter) for h in others)

    def after(self, writing: Writing) -> None:
        """Remember what was left."""
        (self._pure if writing.manner.of_the_value or _augments_places(writing) else self._fed).add(writing.site)
        if writing.manner is Manner.REPLACED:
            self._resets.add(writing.site)
        if writing.extent is None or not isinstance(writing.written, ast.Name):
            return
        if len(self._visits) >= MAX_VISITS:
            self._visits.clear()
            self._left.clear()
        now = contents(writing.tensor)
        visit = _Visit(signature(writing.args), version_of(writing.tensor), now != writing.before)
        self._visits[id(writing.site), writing.extent] = visit
        self._left[writing.extent] = now

    # -- defaults -----------------------------------------------------------------------------------

    def _default(self, writing: Writing) -> Iterator[Event]:
        """A default is in use when a frame of its function holds it under the argument's name."""
        for holding in self._held_by(writing, "default"):
            step = next(s for s in holding.step.up() if s.kind == "default")
            found = _frame_using(step, writing.frames)
            if found is None:
                continue
            frame, function = found
            scratch = writing.manner is Manner.REPLACED or self._reset_before(writing)
            sure: Sure = "possible" if scratch else "proved"
            if writing.seen >= 1 or sure == "possible":
                yield SharedDefaultWritten(
                    Memory(str(step.key)), writing.event, "default", frame.f_code.co_qualname,
                    stored=_definition(function), certainty=sure,
                )  # fmt: skip
            return

    # -- class attributes ---------------------------------------------------------------------------

    def _class_attribute(self, writing: Writing) -> Iterator[Event]:
        """`self.counts += x` where `counts` is the class's: every instance counts into one tensor."""
        for holding in self._held_by(writing, "class"):
            step = next(s for s in holding.step.up() if s.kind == "class")
            receiver = value_of(ast.Name(root_name(writing.written), ast.Load()), writing.top)
            if writing.manner is Manner.REPLACED or is_a(receiver, type) or self._reset_before(writing):
                continue
            owner = next((cls for cls in bases_of(type(receiver)) if id(cls) == step.owner), None)
            if owner is not None:
                met = writing.census.instances.values()
                sure = sum(n for kind, n in met if any(base is owner for base in bases_of(kind))) >= 2
            else:
                # Reached through another object or a name of the function's own.
                sure = writing.manner.of_the_value and writing.top.f_code.co_name != "<module>"
            name = step.above.part if step.above is not None else ""
            sure = sure and not _asked_of_the_class(name, str(step.key), writing)
            yield SharedDefaultWritten(
                Memory(str(step.key)), writing.event, "class", writing.top.f_code.co_qualname, name,
                stored=_in_class(name, str(step.key), writing), certainty="proved" if sure else "possible",
            )  # fmt: skip
            return

    def _reset_before(self, writing: Writing) -> bool:
        """Scratch memory: the same function has just replaced what was there."""
        writes = self.recorder.ledger.writes.get(memory_of(writing.tensor) or 0, [])
        return any(w.site in self._resets and w.site.code is writing.site.code for w in writes[-6:])

    # -- data that is stored ------------------------------------------------------------------------

    def _stored(self, writing: Writing) -> Iterator[Event]:
        """Stored values changed through a name of the function's own, the same way at every visit."""
        written = writing.written
        if not isinstance(written, ast.Name) or writing.extent is None or writing.manner is Manner.REPLACED:
            return
        if writing.top.f_code.co_name == "<module>":
            return
        others = [h for h in self._others(writing) if h.step.outlives]
        # The stored tensor itself may be handed in to be changed; a view of it is rather handed in for its values.
        handed_in = _is_parameter(writing, written.id) and any(h.value is writing.tensor for h in others)
        if not others or not is_tensor(writing.tensor) or is_a(writing.tensor, torch.nn.Parameter):
            return
        reads = next_reads(writing.top, written.id)
        holding = min(others, key=lambda h: (h.step.kind == "local", h.step.depth))
        kinds = {s.kind for s in holding.step.up()}
        cached = "cache" in kinds
        # A view that a function is given and hands back changed: what it is changed by need not be the same each time.
        given = _is_parameter(writing, written.id) and not handed_in
        manner = callers.manner_for_caller(writing) if given else writing.manner
        if not reads or not (cached or manner.of_the_value) or (cached and self._reset_before(writing)):
            return
        before = self._visits.get((id(writing.site), writing.extent))
        if before is None or not (
            cached or self._again(writing, before) or (given and self._left_alone(writing, before))
        ):
            return
        form = "cache" if cached else "global" if holding.step.kind == "global" else "stored"
        counts = writing.op in ("__iadd__", "__isub__", "add_", "sub_") and not _has_tensor(writing)
        # A variable of the function around it is the closure's own state, and addressed as such.
        own = written.id in writing.top.f_code.co_freevars
        yield SharedDefaultWritten(
            Memory(written.id if form != "global" else holding.step.path), writing.event, form,  # type: ignore[arg-type]
            writing.top.f_code.co_qualname, holding.step.path, stored_at(holding.step, writing.frames),
            reads[0].place, "possible" if counts or handed_in or own else "proved",
        )  # fmt: skip

    def _again(self, writing: Writing, before: _Visit) -> bool:
        """The same change of the same bytes, which nobody has written since: the changes add up."""
        if writing.extent is None or writing.op in SETTLED:
            return False
        same = before.operands == signature(writing.args)
        if not before.changed or same is not (writing.manner is Manner.TRANSFORMED):
            return False
        if writing.before is None or writing.before != self._left.get(writing.extent):
            return False
        return self._nothing_came_in(writing, before)

    def _left_alone(self, writing: Writing, before: _Visit) -> bool:
        """Nobody but such lines has written the bytes since this line changed them last."""
        if not before.changed or writing.op in SETTLED or not _has_value(writing):
            return False
        return writing.before is not None and writing.before == self._left.get(writing.extent)  # type: ignore[arg-type]

    def _nothing_came_in(self, writing: Writing, before: _Visit) -> bool:
        """Since that visit only lines that bring in no data have written the memory."""
        writes = self.recorder.ledger.writes.get(memory_of(writing.tensor) or 0, [])
        sites = {w.site for w in writes if before.version is None or w.version > before.version}
        return not sites & self._fed and sites <= self._pure

    # -- memory that NumPy writes --------------------------------------------------------------------

    def handed_out(self, tensor: Any, site: Site, how: str, census: Census, frames: list[FrameType]) -> Iterator[Event]:
        """Stored bytes come by again, changed, and the function that hands them over changes them each time."""
        extent = extent_of(tensor)
        if extent is None or not frames:
            return
        now, before = contents(tensor), self._handed.get((id(site), extent))
        self._handed[id(site), extent] = now
        if before is None or now is None or now == before:
            return
        name = root_name(_argument_at(site))
        line = _augmented(site, name)
        others = [h for h in census.of(extent) if h.step.outlives and h.extent != extent]
        if line is not None and others:
            write = Write("numpy", "foreign", Line(line))
            stored, function = stored_at(others[0].step, frames), frames[0].f_code.co_qualname
            yield SharedDefaultWritten(Memory(name), write, "stored", function, others[0].step.path, stored, site.place)

    # -- who holds it -------------------------------------------------------------------------------

    def _held_by(self, writing: Writing, kind: str) -> Iterator[Holding]:
        assert writing.target is not None
        for holding in writing.census.of(writing.target):
            if any(step.kind == kind for step in holding.step.up()):
                yield holding

    def _others(self, writing: Writing) -> Iterator[Holding]:
        """Holders other than the frame's own names."""
        assert writing.target is not None
        for holding in writing.census.of(writing.target):
            if holding.step.kind != "local":
                yield holding


def _argument_at(site: Site) -> ast.expr | None:
    """`x` in `torch.from_numpy(x)`."""
    file = syntax.file_of(site.place.path)
    node = file.at(site.place) if file else None
    return node.args[0] if isinstance(node, ast.Call) and node.args else None


def _augmented(site: Site, name: str) -> Place | None:
    """Where the function changes what the name stands for: `x /= 255`, `x[0] += 1`."""
    file = syntax.file_of(site.place.path)
    node = file.at(site.place) if file else None
    if file is None or node is None or not name:
        return None
    for inner in file.within(file.function(node)):
        if isinstance(inner, ast.AugAssign) and root_name(inner.target) == name:
            return file.place(inner, site.place)
    return None


def _frame_using(step: Step, frames: list[FrameType]) -> tuple[FrameType, FunctionType] | None:
    """The running frame whose argument is this default."""
    function: Any = step.function
    if function is None:
        return None
    default = dict(defaults_of(function)).get(str(step.key))
    code = function.__code__
    for frame in frames:
        if frame.f_code is code and local_names(frame).get(str(step.key)) is default:
            return frame, function
    return None


def _definition(function: FunctionType) -> Line | None:
    return Line(place_in(function.__code__, 0))


def _in_class(owner: str, name: str, writing: Writing) -> Line | None:
    """The line of the class body that made the attribute."""
    if writing.file is None:
        return None
    for node in ast.walk(writing.file.tree):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if isinstance(statement, ast.AnnAssign):
                    targets = [statement.target]
                if any(syntax.binds_target(target, name) for target in targets):
                    return Line(writing.file.place(statement, writing.place))
    return None


def _asked_of_the_class(owner: str, name: str, writing: Writing) -> bool:
    """`Usage.counts`: whoever asks the class knows that its instances share it."""
    for node in writing.file.within(writing.file.tree) if writing.file is not None else ():
        if isinstance(node, ast.Attribute) and node.attr == name and syntax.text_of(node.value) in (owner, "cls"):
            return True
    return False


def _is_parameter(writing: Writing, name: str) -> bool:
    code = writing.top.f_code
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _has_value(writing: Writing) -> bool:
    """Is the call that runs this function made for its value?"""
    found = call_of(writing.frames[1]) if len(writing.frames) > 1 else None
    return found is not None and not isinstance(found[1].parents.get(found[0]), ast.Expr)


def _augments_places(writing: Writing) -> bool:
    """`x[:, [0, 2]] -= 3` on what the function was given: places are changed by a number."""
    if writing.op != "__setitem__" or writing.file is None or writing.node is None:
        return False
    if not _is_parameter(writing, root_name(writing.written)):
        return False
    statement = writing.file.statement(writing.node)
    if not isinstance(statement, ast.AugAssign):
        return False
    value = value_of(statement.value, writing.top)
    return isinstance(statement.value, ast.Constant) or is_exactly(value, (int, float))


def _has_tensor(writing: Writing) -> bool:
    return any(is_tensor(value) for value in writing.args[1:])

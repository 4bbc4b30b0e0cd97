"""Memory that outlives the call which writes it: the next call starts from what this one has left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from torchsan.model import Place
from torchsan.model.events import Event, Line, Memory, SharedDefaultWritten, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence import ownmade
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.evidence.stored import Stored
from torchsan.observe.foreign_writes import lines_that_write
from torchsan.observe.holders.classes import bases_of, defaults_of
from torchsan.observe.holders.extents import Extent, contents, extent_of
from torchsan.observe.holders.manner import Manner
from torchsan.observe.holders.resolving import root_name
from torchsan.observe.holders.slots import Census, Holding, Step
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_a, is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site, place_in
from torchsan.observe.tensors import memory_of

MAX_HANDED = 4_096


class Outliving:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._resets: set[Site] = set()
        self._handed: dict[tuple[int, Extent], int | None] = {}
        self.stored = Stored(recorder, self._reset_before)

    def events_of(self, writing: Writing) -> Iterator[Event]:
        """What is to be told if the write changes values."""
        if writing.target is None:
            return
        yield from self._default(writing)
        yield from self._class_attribute(writing)
        if writing.manner is not Manner.EDITED:
            yield from self.stored.events_of(writing)

    def edits_of(self, writing: Writing) -> Iterator[Event]:
        """What is to be told of constants put into stored memory: other places each time, and the old ones stay."""
        if writing.manner is Manner.EDITED and writing.target is not None:
            yield from self.stored.events_of(writing)

    def after(self, writing: Writing) -> None:
        """Remember what was left."""
        if _forgets(writing):
            self._resets.add(writing.site)
        self.stored.after(writing)

    # -- defaults -----------------------------------------------------------------------------------

    def _default(self, writing: Writing) -> Iterator[Event]:
        """A default is in use when a frame of its function holds it under the argument's name."""
        for holding in self._held_by(writing, "default"):
            step = next(s for s in holding.step.up() if s.kind == "default")
            user = _code_using(step, writing)
            if user is None:
                yield from self._kept_default(step, writing)
                continue
            scratch = _forgets(writing) or self._reset_before(writing)
            sure: Sure = "possible" if scratch else "proved"
            if writing.seen >= 1 or sure == "possible":
                yield SharedDefaultWritten(
                    Memory(str(step.key)), writing.event, "default", user.co_qualname,
                    stored=_made_at(step, writing), certainty=sure,
                )  # fmt: skip
            return

    def _kept_default(self, step: Step, writing: Writing) -> Iterator[Event]:
        """The function has returned, and somebody has kept the default that he was given: so may others."""
        function: Any = step.function
        if function is not None and writing.seen >= 1 and not self._reset_before(writing):
            yield SharedDefaultWritten(
                Memory(str(step.key)), writing.event, "default", writing.top.f_code.co_qualname,
                stored=_made_at(step, writing), certainty="proved" if _kept_by_several(writing) else "possible",
            )  # fmt: skip

    # -- class attributes ---------------------------------------------------------------------------

    def _class_attribute(self, writing: Writing) -> Iterator[Event]:
        """`self.counts += x` where `counts` is the class's: every instance counts into one tensor."""
        for holding in self._held_by(writing, "class"):
            step = next(s for s in holding.step.up() if s.kind == "class")
            through = [ancestor.value for ancestor in writing.lineage]
            if _forgets(writing) or any(is_a(value, type) for value in through) or self._reset_before(writing):
                continue
            owner = next((cls for value in through for cls in bases_of(type(value)) if id(cls) == step.owner), None)
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

    # -- memory that NumPy writes --------------------------------------------------------------------

    def came_again(self, tensor: Any, site: Site) -> bool:
        """Have these bytes been handed over here before, and do they hold other values now?"""
        extent = extent_of(tensor)
        if extent is None:
            return False
        if len(self._handed) >= MAX_HANDED:
            self._handed.clear()
        now, before = contents(tensor), self._handed.get((id(site), extent))
        self._handed[id(site), extent] = now
        return before is not None and now is not None and now != before

    def handed_out(self, tensor: Any, site: Site, how: str, census: Census, frames: list[FrameType]) -> Iterator[Event]:
        """Stored bytes come by again, changed, and the function that hands them over changes them each time."""
        extent = extent_of(tensor)
        if extent is None or not frames:
            return
        name = root_name(_argument_at(site))
        line = _augmented(site, name)
        others = [h for h in census.of(extent) if h.step.outlives and h.extent != extent]
        if line is None:
            # An argument of the function, which works on it under the name that it has as an array.
            line = _changed_as_array(site, how) if _is_given(name, frames[0]) else None
            others = [h for h in census.of(extent) if h.step.root.frame is not frames[0] and h.step.above is not None]
        if line is not None and others:
            write = Write("numpy", "foreign", Line(line))
            stored, function = stored_at(others[0].step, frames), frames[0].f_code.co_qualname
            yield SharedDefaultWritten(Memory(name), write, "stored", function, others[0].step.path, stored, site.place)

    # -- who holds it -------------------------------------------------------------------------------

    def _held_by(self, writing: Writing, kind: str) -> Iterator[Holding]:
        assert writing.target is not None
        for holding in writing.census.of(writing.target):
            # The default of a method is the function's, not an attribute of its class.
            if next((step.kind for step in holding.step.up() if step.kind in ("default", "class")), "") == kind:
                yield holding


def _forgets(writing: Writing) -> bool:
    """Is nothing left of what was there? `state.copy_(step(x, state))` goes on from it."""
    return writing.manner is Manner.REPLACED and not ownmade.is_made_of_itself(writing)


def _kept_by_several(writing: Writing) -> bool:
    """Do several objects have the default in an attribute of one name? What one writes, the other goes on with."""
    keepers: dict[object, set[int]] = {}
    for holding in writing.census.of(writing.target) if writing.target is not None else ():
        if holding.step.kind == "attribute" and holding.extent == writing.extent:
            keepers.setdefault(holding.step.key, set()).add(holding.step.owner)
    return any(len(owners) >= 2 for owners in keepers.values())


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


def _is_given(name: str, frame: FrameType) -> bool:
    """Is it an argument, and a tensor? What is an array to begin with is rather the function's to work with."""
    code = frame.f_code
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] and is_tensor(local_names(frame)[name])


def _changed_as_array(site: Site, how: str) -> Place | None:
    """`out = np.asarray(rewards)`, and below `out[t] += gain * out[t + 1]`."""
    file = syntax.file_of(site.place.path)
    for place in lines_that_write(site.place, how) if file is not None else ():
        node = file.at(place) if file is not None else None
        if isinstance(node, ast.AugAssign) and place.line > site.place.line:
            return place
    return None


def _code_using(step: Step, writing: Writing) -> CodeType | None:
    """The function that is running with this default as its argument."""
    function: Any = step.function
    if function is None:
        return None
    default = dict(defaults_of(function)).get(str(step.key))
    code: CodeType = function.__code__
    if writing.compiled and _stands_in(writing.place, code):
        return code
    running = (frame for frame in writing.frames if frame.f_code is code)
    return code if any(local_names(frame).get(str(step.key)) is default for frame in running) else None


def _stands_in(place: Place, code: CodeType) -> bool:
    """Is this a line of the function? What was compiled runs without a frame of its own."""
    last = max((line for _, _, line in code.co_lines() if line is not None), default=0)
    return place.path == place_in(code, 0).path and code.co_firstlineno <= place.line <= last


def _made_at(step: Step, writing: Writing) -> Line | None:
    """Where the default is made: at its function, or in the class whose `__init__` a dataclass has written."""
    function: Any = step.function
    at = place_in(function.__code__, 0)
    if syntax.file_of(at.path) is not None:
        return Line(at)
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    return _in_class(owner, str(step.key), writing)


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

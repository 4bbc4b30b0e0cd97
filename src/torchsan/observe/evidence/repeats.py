"""One memory in several slots that were filled at different times: the entries of a history that are all the last."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import AliasedSnapshot, Line, Memory, Sure, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.manner import Manner
from torchsan.observe.holders.reading import reads_elsewhere
from torchsan.observe.holders.slots import Census, Holding, Step
from torchsan.observe.holders.storing import homes_of, stored_at
from torchsan.observe.holders.takings import Takings, by_extent, differed, rewritten
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_a
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import frame_place
from torchsan.observe.tensors import memory_of

_ITEM = re.compile(r"\[[^\]]*\]")
# How a memory was written: its line and its manner; None when nobody knows.
LastWrite = Callable[[Any, Census], Write | None]


class Repeats:
    def __init__(self, recorder: Recorder, takings: Takings, last_write: LastWrite) -> None:
        self.recorder = recorder
        self.takings = takings
        self.last_write = last_write
        # In what manner each memory was last written, since that tells a history from a shared accumulator.
        self.manners: dict[int, Manner] = {}
        # Memory that objects write through attributes of their own, and these objects: in a container they share it,
        # and did not keep it.
        self._resources: set[tuple[int, int]] = set()
        self._told: set[tuple[object, ...]] = set()
        # The statements that were told to store one memory again and again, and the memories that they stored.
        self._causes: set[tuple[str, int, int]] = set()
        self._stored: dict[int, compat.WeakStorage] = {}

    def look(self, census: Census, frames: list[FrameType], writing: Writing | None = None) -> None:
        if writing is not None:
            self._note_resource(census, writing)
        items = [h for h in census.holdings if any(s.kind in ("item", "young") for s in h.step.up())]
        for group in by_extent(items).values():
            if len(group) >= 2:
                self._judge(group, census, frames, writing)

    def _judge(self, group: list[Holding], census: Census, frames: list[FrameType], writing: Writing | None) -> None:
        extent = group[0].extent
        grads = any(h.step.kind == "grad" and h.extent == extent for h in census.holdings)
        siblings: dict[tuple[object, ...], list[Holding]] = {}
        for holding in group:
            siblings.setdefault(_family(holding), []).append(holding)
        for family in siblings.values():
            pair = self._different(family, grads)
            if pair is not None:
                # Modules of one memory are told as such; and what objects write themselves they may well share.
                shared = is_a(pair[0].value, torch.nn.Parameter) or any(map(self._is_resource, pair))
                shared = shared and _below_an_object(pair[0])
                self._tell(pair, len(family), census, frames, writing, "possible" if shared else "proved")
                return
            if writing is not None and len(family) >= 2:
                sure = self._one_for_all(family, writing)
                if sure is not None:
                    self._tell((family[0], family[-1]), len(family), census, frames, writing, sure)
                    return
        if len(siblings) >= 2 and not is_a(group[0].value, torch.nn.Parameter):
            pair = self._different(group)
            if pair is not None and _same_namespace(*pair) and not _is_selection(*pair, frames):
                self._tell(pair, len(group), census, frames, writing, self._across(pair))

    def _note_resource(self, census: Census, writing: Writing) -> None:
        """Does the line write through something that its own object holds?"""
        memory, node = memory_of(writing.tensor), writing.node
        if memory is None or node is None or writing.extent is None:
            return
        own = {id(value) for value in local_names(writing.top).values()}
        named = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        for holding in census.of(writing.extent):
            for step in holding.step.up():
                if step.kind == "attribute" and step.owner in own and step.key in named:
                    self._resources.add((memory, step.owner))

    def _is_resource(self, holding: Holding) -> bool:
        """Has the object in the container that holds this memory written it itself?"""
        memory = memory_of(holding.value)
        return memory is not None and any((memory, step.owner) in self._resources for step in holding.step.up())

    def _different(self, family: list[Holding], grads: bool = False) -> tuple[Holding, Holding] | None:
        """Two slots whose memory held different values when they were filled.

        A gradient is zero each time before it is added to: of those it counts that they have been written since.
        """
        known = [(h, taking) for h in family if (taking := self.takings.of(h)) is not None]
        known.sort(key=lambda pair: pair[1].tick)
        for (one, early), (other, late) in pairwise(known):
            if differed(early, late) or (grads and rewritten(early, late)):
                return one, other
        return None

    def _across(self, pair: tuple[Holding, Holding]) -> Sure:
        """Two containers: kept before and after a change of the value itself, or registered twice while it fills?"""
        manner = self.manners.get(memory_of(pair[0].value) or 0)
        return "proved" if manner is not None and manner.of_the_value else "possible"

    def _one_for_all(self, family: list[Holding], writing: Writing) -> Sure | None:
        """`[buffer] * n`, or one buffer under each of n objects, written entry by entry: each write changes all."""
        slots = list({holding.slot: holding for holding in family if holding.extent == writing.extent}.values())
        if len(slots) < 2 or is_a(slots[0].value, torch.nn.Parameter):
            return None
        container = _where_they_part(slots[0], slots[1])
        if container is None or not any(id(a.value) == container and a.each for a in writing.lineage):
            return None
        between = {step.kind for step in _below(slots[0], container)}
        if between <= {"item"}:
            return "proved" if writing.manner.reads or (len(between) == 1 and _is_entry(slots[0], container)) else None
        if not writing.manner.reads:
            return None if writing.manner is not Manner.REPLACED else "possible"
        return "proved" if "grad" in between or writing.manner is Manner.TRANSFORMED else "possible"

    # -- telling ------------------------------------------------------------------------------------

    def _tell(
        self,
        pair: tuple[Holding, Holding],
        entries: int,
        census: Census,
        frames: list[FrameType],
        writing: Writing | None,
        certainty: Sure,
    ) -> None:
        early, late = pair
        container = _container(early)
        key = (early.step.root.owner, container, _container(late))
        if key in self._told:
            return
        written = writing is not None and writing.extent is not None and writing.extent.meets(early.extent)
        write = writing.event if written and writing is not None else self.last_write(early.value, census)
        taken = _put_at(early, frames) or stored_at(early.step, frames)
        used = taken if early.step.kind == "young" else _read_of(container, early, frames)
        sure: Sure = certainty if used is not None else "possible"
        if self._is_known(early, taken, frames):
            return
        if sure == "proved":
            self._told.add(key)
            self._note_cause(early, taken)
        name = writing.name if written and writing is not None else ""
        shown = container if container == _container(late) else f"{container}` and `{_container(late)}"
        self.recorder.emit(AliasedSnapshot(Memory(name), taken, write, used, "list", shown or "a list", entries, sure))

    def is_told(self, tensor: torch.Tensor) -> bool:
        """Was this memory told to be stored again and again?"""
        storage = self._stored.get(memory_of(tensor) or 0)
        return storage is not None and storage.get() is not None

    def _is_known(self, holding: Holding, taken: Line | None, frames: list[FrameType]) -> bool:
        """Was the cause told before? The same container goes by other names where it is handed on to."""
        if taken is not None and _spot(taken) in self._causes:
            return True
        if memory_of(holding.value) not in self._stored or holding.step.kind == "young":
            return False
        put = stored_at(holding.step, frames, bound=False)
        return put is None or _spot(put) in self._causes

    def _note_cause(self, holding: Holding, taken: Line | None) -> None:
        memory = memory_of(holding.value)
        if memory is not None:
            self._stored[memory] = compat.WeakStorage(holding.value)
        if taken is not None:
            self._causes.add(_spot(taken))


def _put_at(holding: Holding, frames: list[FrameType]) -> Line | None:
    """Where the object that holds the memory was put into a list of such objects."""
    if not _below_an_object(holding):
        return None
    entry = next(step for step in holding.step.up() if step.kind == "item")
    return stored_at(entry, frames, bound=False)


def _spot(line: Line) -> tuple[str, int, int]:
    """A statement, whichever function it was looked up from."""
    return line.place.path, line.place.line, line.place.column


def _where_they_part(one: Holding, other: Holding) -> int | None:
    """The container of which the two slots are below different entries."""
    owners = {step.owner: step.key for step in one.step.up() if step.kind == "item"}
    for step in other.step.up():
        if step.kind == "item" and step.owner in owners:
            return step.owner if owners[step.owner] != step.key else None
    return None


def _below(holding: Holding, container: int) -> Iterator[Step]:
    """The steps from an entry of the container down to the slot."""
    for step in holding.step.up():
        yield step
        if step.owner == container and step.kind == "item":
            return


def _is_entry(holding: Holding, container: int) -> bool:
    return holding.step.owner == container


def _below_an_object(holding: Holding) -> bool:
    """`workers[2].tables[0]`: the attribute of something that is in a container."""
    kinds = [step.kind for step in holding.step.up()]
    return "attribute" in kinds and "item" in kinds[kinds.index("attribute") :]


def _family(holding: Holding) -> tuple[object, ...]:
    """Slots of one container, whatever the index: the way to them without its indices."""
    root = holding.step.root
    owner = (root.owner, root.key) if root.kind != "young" else (root.owner,)
    return (*owner, _ITEM.sub("[]", holding.step.path) if root.kind != "young" else "")


def _container(holding: Holding) -> str:
    """`self.rounds` for `self.rounds[2][0]`."""
    return holding.step.path.partition("[")[0]


def _same_namespace(one: Holding, other: Holding) -> bool:
    """Containers of one function or of one object."""
    first, second = _named(one), _named(other)
    return first is not None and first == second


def _is_selection(one: Holding, other: Holding, frames: list[FrameType]) -> bool:
    """`moving = [body for body in bodies if …]`: entries of the one list, in another that leads to them."""
    for holding, beside in ((one, other), (other, one)):
        made = stored_at(holding.step, frames)
        file = syntax.file_of(made.place.path) if made is not None else None
        statement = file.at(made.place) if file is not None and made is not None else None
        for part in ast.walk(statement) if isinstance(statement, ast.Assign) else ():
            if isinstance(part, ast.ListComp) and _container(beside) in map(ast.unparse, ast.walk(part)):
                return True
    return False


def _named(holding: Holding) -> int | None:
    return next((s.owner for s in holding.step.up() if s.kind not in ("item", "young")), None)


def _read_of(container: str, holding: Holding, frames: list[FrameType]) -> Line | None:
    """Where the program looks into the container."""
    root = holding.step.root
    if root.frame is not None and root.part == container and root.kind == "local":
        frames = [root.frame]
    met: set[str] = set()
    for frame in frames:
        place = frame_place(frame)
        file = syntax.file_of(place.path) if place.path not in met else None
        met.add(place.path)
        if file is None or not container:
            continue
        node = file.at(place) if root.kind == "local" and root.part == container else None
        found = reads_elsewhere(file, place, container, file.function(node) if node is not None else file.tree)
        if found is not None:
            return Line(found)
    for file, scope, near in homes_of(holding.step):
        found = reads_elsewhere(file, near, container, scope)
        if found is not None:
            return Line(found)
    return None

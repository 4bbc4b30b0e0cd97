"""Stored data changed through a name of the function's own, the same way at every visit: the changes add up."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from torchsan import compat
from torchsan.model.events import Event, Memory, SharedDefaultWritten
from torchsan.observe.evidence import ownmade, records
from torchsan.observe.evidence.arguments import manner_for_caller
from torchsan.observe.evidence.samples import goes_by, handed_on_at
from torchsan.observe.evidence.scene import Writing, call_of
from torchsan.observe.holders.extents import Extent, contents, extent_of, version_of
from torchsan.observe.holders.manner import SETTLED, Manner, signature
from torchsan.observe.holders.resolving import root_name, value_of
from torchsan.observe.holders.slots import Holding
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.objects import is_a, is_exactly, is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site
from torchsan.observe.tensors import memory_of

MAX_VISITS = 4096
# Of memory that is written in more stretches than these, none is followed into another.
MAX_STRETCHES = 64
# What a stretch holds of which another line has written a part since.
TOUCHED = object()
# How many ways to change the same bytes are told apart.
MAX_WAYS = 16


@dataclass(slots=True)
class _Visit:
    """What a line did to some bytes the last time it came by."""

    operands: object
    changed: bool
    memory: compat.WeakStorage
    # With which operands it came by, and how often the memory had been written then.
    ways: dict[object, int | None] = field(default_factory=dict)
    # What the bytes held when it came by: values that come back were put back.
    found: set[int | None] = field(default_factory=set)

    def is_of(self, writing: Writing, holders: list[Holding]) -> bool:
        """Is it the memory that it was? What was let go is given to the next one who asks; an array stays."""
        there = self.memory.get()
        if there is None:
            return any(not is_tensor(holding.value) for holding in holders)
        return bool(there._cdata == memory_of(writing.tensor))


class Stored:
    def __init__(self, recorder: Recorder, reset_before: Callable[[Writing], bool]) -> None:
        self.recorder = recorder
        self._reset_before = reset_before
        # Lines that were seen to change values without bringing in data, and lines that were seen to bring some.
        self._pure: set[Site] = set()
        self._fed: set[Site] = set()
        # Stretches into which such a line has brought data: they are a state that moves on, whoever asks for it.
        self._states: dict[Extent, None] = {}
        self._visits: dict[tuple[int, Extent], _Visit] = {}
        # What each stretch of memory held when an observed write had been made.
        self._left: dict[Extent, object] = {}
        # The stretches of each memory of which that is known.
        self._within: dict[int | None, dict[Extent, None]] = {}
        # Memoised tables whose places were all equal when they were first met, as those of a counter are.
        self._uniform: dict[Extent, bool] = {}
        # Whose shallow copy each line came by, for each stretch.
        self._keepers: dict[tuple[int, Extent], int] = {}

    def follows(self, writing: Writing) -> bool:
        """A line that transforms stored memory through a name of its own is looked at again and again."""
        if writing.manner not in (Manner.TRANSFORMED, Manner.EDITED, Manner.ACCUMULATED):
            return False
        others = list(_others(writing)) if goes_by(writing) is not None else []
        # Parameters are there to be changed.
        return any(h.step.outlives for h in others) and not any(is_a(h.value, torch.nn.Parameter) for h in others)

    def met(self, site: Site, extent: Extent | None) -> bool:
        """Has this line written these bytes before?"""
        return (id(site), extent) in self._visits

    def after(self, writing: Writing) -> None:
        """Remember what was left."""
        if _onto_itself(writing):
            self._pure.add(writing.site)  # what changed it came before
            return
        brings_none = writing.manner.of_the_value or _augments_places(writing) or ownmade.numbers(writing) is not None
        (self._pure if brings_none else self._fed).add(writing.site)
        if writing.extent is None:
            return
        self._touch(writing)
        if not brings_none:
            self._states.pop(writing.extent, None)
            if len(self._states) >= MAX_VISITS:
                del self._states[next(iter(self._states))]
            self._states[writing.extent] = None
        if goes_by(writing) is None:
            return
        if len(self._visits) >= MAX_VISITS:
            self._visits.clear()
            self._left.clear()
            self._keepers.clear()
            self._within.clear()
        now, operands = contents(writing.tensor), _operands(writing)
        key = (id(writing.site), writing.extent)
        visit = self._visits.setdefault(key, _Visit(None, False, compat.WeakStorage(writing.tensor)))
        if visit.memory.get() is None:  # of an array, which is made a tensor at each visit
            visit.memory = compat.WeakStorage(writing.tensor)
        visit.operands, visit.changed = operands, now != writing.before
        if visit.changed and len(visit.ways) < MAX_WAYS:
            visit.ways.setdefault(operands, version_of(writing.tensor))
        if visit.changed and len(visit.found) < MAX_WAYS:
            visit.found.add(writing.before)
        self._left[writing.extent] = now
        self._within.setdefault(memory_of(writing.tensor), {})[writing.extent] = None

    def _touch(self, writing: Writing) -> None:
        """Stretches that meet what is written are not what they were left as; by whom they changed is known.

        A line that writes now this part and now that one makes other values of the whole each time.
        """
        stretches, one_part = self._within.get(memory_of(writing.tensor), {}), _is_of_one_part(writing)
        for extent in list(stretches) if len(stretches) <= MAX_STRETCHES else ():
            own = writing.extent
            if own is not None and own != extent and (own.covers(extent) or (one_part and own.meets(extent))):
                self._left[extent] = TOUCHED

    def _is_as_left(self, writing: Writing) -> bool:
        """Does the memory hold what a line that was looked at has left there?"""
        left = self._left.get(writing.extent) if writing.extent is not None else None
        return writing.before is not None and (left is TOUCHED or writing.before == left)

    def events_of(self, writing: Writing) -> Iterator[Event]:
        """What is to be told if the write changes values."""
        written = goes_by(writing)
        if written is None or writing.extent is None or writing.manner is Manner.REPLACED:
            return
        told = list(self._through_a_name(writing, written))
        yield from told or (self._by_region(writing) if writing.compiled else ())

    def _through_a_name(self, writing: Writing, written: ast.Name | ast.Attribute) -> Iterator[Event]:
        if writing.extent is None or writing.top.f_code.co_name == "<module>" or _onto_itself(writing):
            return
        others = [h for h in _others(writing) if h.step.outlives and not _given_by_this_function(writing, h)]
        # The stored tensor itself may be handed in to be changed; a view of it is rather handed in for its values, and
        # so is what a data loader has asked for.
        own_name = written.id if isinstance(written, ast.Name) else ""
        # Under whatever form it is written: `t.data` and `t.detach()` are the tensor that `t` is.
        handed_in = _is_parameter(writing, own_name) and any(
            h.value is writing.tensor or h.value is value_of(written, writing.top) for h in others
        )
        if not others or not is_tensor(writing.tensor) or is_a(writing.tensor, torch.nn.Parameter):
            return
        own = {id(ancestor.value) for ancestor in writing.lineage}
        holding = min(others, key=lambda h: (h.step.owner in own, *_distance(writing, h)))
        cached = "cache" in {s.kind for s in holding.step.up()}
        fetched, copied = ownmade.is_fetched(writing.top), self._is_copied_again(writing, holding)
        # A helper that is given a state may hand it back: `return level.mul_(0.9)`. Samples and tables are values.
        read = handed_on_at(writing, written, fetched or (cached and not self._is_uniform(holding)))
        # A view that a function is given and hands back changed: what it is changed by need not be the same each time.
        given = _is_parameter(writing, own_name) and not handed_in
        manner = manner_for_caller(writing) if given else writing.manner
        of_the_value = manner.of_the_value or self._sample(writing, holding) or (copied and manner.reads)
        if read is None or not (cached or of_the_value) or (cached and self._reset_before(writing)):
            return
        counts = _counts(writing) and not (cached and not self._is_uniform(holding))
        before = self._visits.get((id(writing.site), writing.extent))
        if before is not None and not before.is_of(writing, others):
            del self._visits[id(writing.site), writing.extent]
            return
        if before is None or writing.before in before.found:
            return
        wanted = handed_in and self._for_its_value(writing, others)
        apart = fetched or copied or (given and _has_value(writing))
        apart = apart or (wanted and self._nothing_came_in(writing, None))
        if not (cached or self._again(writing, before) or (apart and self._left_alone(writing, before))):
            return
        form = "cache" if cached else "global" if holding.step.kind == "global" else "stored"
        # A variable of the function around it is the closure's own state, and addressed as such. An attribute of what a
        # loop goes over may be a state that moves on; so may a tensor that is handed in as it is stored.
        enclosed = own_name in writing.top.f_code.co_freevars
        unsure = not own_name or (handed_in and not wanted)
        sure = not (counts or enclosed) and (fetched or copied or not unsure)
        yield SharedDefaultWritten(
            Memory(ast.unparse(written) if form != "global" else holding.step.path), writing.event, form,  # type: ignore[arg-type]
            writing.top.f_code.co_qualname, holding.step.path, stored_at(holding.step, writing.frames),
            read, "proved" if sure else "possible",
        )  # fmt: skip

    def _is_copied_again(self, writing: Writing, holding: Holding) -> bool:
        """Has the line come by a shallow copy of this keeper before? Then the copy did not take the keeper's place."""
        if writing.extent is None or not records.is_copied(writing, holding):
            return False
        key = (id(writing.site), writing.extent)
        known, self._keepers[key] = self._keepers.get(key), holding.step.owner
        return known == holding.step.owner

    def _for_its_value(self, writing: Writing, others: list[Holding]) -> bool:
        """A stored tensor handed in as it is: a part of a batch or a memoised table, and a call for its value."""
        if any(map(self._is_uniform, others)) or not records.is_given_for_its_value(writing.frames):
            return False
        visited = {extent for site, extent in self._visits if site == id(writing.site)}
        if len(visited) >= 2 and any(map(records.is_of_a_record, others)):
            return True
        return any(records.is_memo(holding, writing.frames) for holding in others)

    def _by_region(self, writing: Writing) -> Iterator[Event]:
        """A compiled region changes stored memory that it was given a view of. What it brings in is not known."""
        others = [h for h in _others(writing) if h.step.outlives and h.value is not writing.tensor]
        before = self._visits.get((id(writing.site), writing.extent))  # type: ignore[arg-type]
        if not others or before is None or not before.changed or is_a(writing.tensor, torch.nn.Parameter):
            return
        if not self._is_as_left(writing):
            return
        # The innermost frame may be code that the compiler wrote, which stands at no call.
        called = next((found for frame in writing.frames if (found := call_of(frame)) is not None), None)
        if called is None or isinstance(called[1].parents.get(called[0]), ast.Expr):
            return  # called for what it does
        holding = min(others, key=lambda h: _distance(writing, h))
        yield SharedDefaultWritten(
            Memory(root_name(writing.written)), writing.event, "stored", writing.place.function, holding.step.path,
            stored_at(holding.step, writing.frames), called[2], "possible",
        )  # fmt: skip

    # -- the same change again ----------------------------------------------------------------------

    def _again(self, writing: Writing, before: _Visit) -> bool:
        """The same change of the same bytes, which nobody has written since: the changes add up."""
        if writing.extent is None or writing.op in SETTLED or not before.changed:
            return False
        operands = _operands(writing)
        if writing.manner is Manner.EDITED:
            if before.operands == operands:
                return False  # the same constants in the same places
            since = before.ways.get(before.operands)
        elif operands in before.ways:
            since = before.ways[operands]
        else:
            return False
        return self._is_as_left(writing) and self._nothing_came_in(writing, since)

    def _left_alone(self, writing: Writing, before: _Visit) -> bool:
        """Nobody but such lines has written the bytes since this line changed them last."""
        if writing.extent in self._states:
            return False
        return before.changed and writing.op not in SETTLED and self._is_as_left(writing)

    def _nothing_came_in(self, writing: Writing, since: int | None) -> bool:
        """Since that visit only lines that bring in no data have written the memory."""
        writes = self.recorder.ledger.writes.get(memory_of(writing.tensor) or 0, [])
        sites = {w.site for w in writes if since is None or w.version > since}
        return not sites & self._fed and sites <= self._pure

    def _sample(self, writing: Writing, holding: Holding) -> bool:
        """A part of stored data, asked for by a data loader, and changed by a function of itself.

        A state that moves on from what it was looks the same; but nobody loads a state in batches.
        """
        if writing.manner is not Manner.ACCUMULATED or not _is_sample(writing, holding):
            return False
        return ownmade.numbers(writing) is not None

    def _is_uniform(self, holding: Holding) -> bool:
        """Were all places of the table equal when it was first met?"""
        known = self._uniform.get(holding.extent)
        if known is None:
            if len(self._uniform) >= MAX_VISITS:
                self._uniform.clear()
            known = self._uniform[holding.extent] = _all_equal(holding.value)
        return known


def _is_of_one_part(writing: Writing) -> bool:
    """`points[..., 0] /= width`: the part that is written stands in the source."""
    node = writing.node
    target = node.target if isinstance(node, ast.AugAssign) else None
    if not isinstance(target, ast.Subscript):
        return False
    return not any(isinstance(part, (ast.Name, ast.Call, ast.Attribute)) for part in ast.walk(target.slice))


def _all_equal(value: object) -> bool:
    if not is_tensor(value) or value.device.type != "cpu":
        return True  # nothing is known of it
    flat = torch._C.TensorBase.detach(value).reshape(-1)[:4096]
    return bool((flat == flat[0]).all())


def _others(writing: Writing) -> Iterator[Holding]:
    """Holders other than the frame's own names."""
    for holding in writing.census.of(writing.target) if writing.target is not None else ():
        if holding.step.kind != "local":
            yield holding


def _given_by_this_function(writing: Writing, holding: Holding) -> bool:
    """Is it an object that the function has by a name: the one that the line writes, or one that was given this?"""
    root, depth = holding.step.root, holding.step.depth
    if root.frame is not writing.top or root.kind != "local":
        return False
    if not any(isinstance(a.node, ast.Name) and a.node.id == root.part for a in writing.lineage):
        return not _is_parameter(writing, root.part)
    return depth == 1 and root.part not in ("self", "cls")


def _distance(writing: Writing, holding: Holding) -> tuple[bool, bool, int]:
    """What keeps data is told rather than a variable that leads to it for now."""
    root = holding.step.root
    passing = root.kind == "local" and root.part != "self" and all(s.kind != "item" for s in holding.step.up())
    return passing, root.frame is writing.top, holding.step.depth


def _operands(writing: Writing) -> object:
    """What the values are changed by, to tell whether the next change is the same."""
    if not writing.known:
        return object()  # equal to none
    numbers = ownmade.numbers(writing) if writing.manner is Manner.ACCUMULATED else None
    return signature(writing.args) if numbers is None else numbers


def _onto_itself(writing: Writing) -> bool:
    """`x[1:] -= y` ends by giving `x[1:]` what it has."""
    if writing.op != "__setitem__" or len(writing.args) < 3 or not is_tensor(writing.args[2]):
        return False
    return extent_of(writing.args[2]) == writing.target


def _counts(writing: Writing) -> bool:
    """A number is added: what is counted is meant to change."""
    return writing.op in ("__iadd__", "__isub__", "add_", "sub_") and not any(map(is_tensor, writing.args[1:]))


def _is_sample(writing: Writing, holding: Holding) -> bool:
    """A part of stored data that a data loader has asked for."""
    return holding.extent != writing.extent and ownmade.is_fetched(writing.top)


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

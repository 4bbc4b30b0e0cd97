"""The bare facts, for `--possible`: a write, another holder of the memory, and where that one is read afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import torch

from torchsan.model import Place
from torchsan.model.events import AliasedSnapshot, Event, Line, Memory, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.reading import next_reads, reads_elsewhere
from torchsan.observe.holders.slots import Census, Holding
from torchsan.observe.holders.storing import stored_at
from torchsan.observe.holders.takings import Takings
from torchsan.observe.objects import is_a, is_tensor
from torchsan.observe.sites import frame_place
from torchsan.observe.tensors import memory_of

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def events_of(writing: Writing) -> Iterator[Event]:
    """Whoever holds what is written and is not on the way by which the line reaches it."""
    if writing.target is None:
        return
    through = {id(ancestor.value) for ancestor in writing.lineage} | {id(writing.tensor)}
    own = {id(value) for value in writing.args}
    if writing.compiled and len({h.slot for h in writing.census.of(writing.target)}) == 1:
        return  # the one slot that the region came by, under the name that a caller has for its owner
    for holding in sorted(writing.census.of(writing.target), key=_nearest):
        # What lies in a container on the way is meant by whoever writes the container; another attribute is not.
        owners = {step.owner for step in holding.step.up() if step.kind == "item"}
        if id(holding.value) in through | own or owners & through or holding.step.kind == "young":
            continue
        used = _read_of(holding, writing.frames)
        if used is not None:
            yield _told(holding, writing.event, used, writing.frames, writing.name)


def stepped(
    census: Census, memories: frozenset[int], write: Write, frames: list[FrameType], takings: Takings
) -> Iterator[Event]:
    """Aliases of trained parameters that are not the parameters themselves and were taken before this step."""
    for holding in census.holdings:
        if is_a(holding.value, torch.nn.Parameter) or not is_tensor(holding.value) or holding.value.requires_grad:
            continue
        if memory_of(holding.value) not in memories or not takings.changed_since(holding):
            continue
        used = _read_of(holding, frames)
        if used is not None:
            told = _told(holding, write, used, frames, "")
            taking = takings.of(holding)
            # Taken again after a step, since it is better now: a live reference would have needed no second taking.
            sure = taking is not None and taking.retaken and _is_kept_when_better(told.taken)
            yield replace(told, certainty="proved") if sure else told
            return


def _is_kept_when_better(taken: Line | None) -> bool:
    """Does the statement stand under a comparison with the best so far, which becomes another there?"""
    file = syntax.file_of(taken.place.path) if taken is not None else None
    node = file.at(taken.place) if file is not None and taken is not None else None
    for around in file.up(node) if file is not None and node is not None else ():
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, ast.If) and any(isinstance(part, _ORDER) for part in ast.walk(around.test)):
            compared = {
                ast.unparse(part) for part in ast.walk(around.test) if isinstance(part, (ast.Name, ast.Attribute))
            }
            bound = {ast.unparse(name) for name in _bound_in(around.body)}
            if compared & bound:
                return True
    return False


def _bound_in(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for statement in body:
        for part in ast.walk(statement):
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Store):
                yield part


def added_to(census: Census, write: Write, frames: list[FrameType]) -> Iterator[Event]:
    """Gradients that somebody else holds, too, while the next backward adds to them."""
    live = {h.extent for h in census.holdings if h.step.kind == "grad"}
    for holding in census.holdings:
        if holding.extent in live and not any(step.kind == "grad" for step in holding.step.up()):
            used = _read_of(holding, frames) if holding.step.kind != "local" else None
            if used is not None:
                yield _told(holding, write, used, frames, "the gradient")
                return


def shared_buffers(census: Census, write: Write, frames: list[FrameType]) -> Iterator[Event]:
    """Modules of one class that keep their statistics in one buffer."""
    known: dict[tuple[int, str], tuple[str, object]] = {}
    for step, module in census.modules:
        for name, buffer in module._buffers.items():
            memory = memory_of(buffer) if is_tensor(buffer) else None
            if memory is None:
                continue
            first, owner = known.setdefault((memory, name), (step.path, module))
            if owner is not module and type(owner) is type(module):
                at = _bound_to(name, frames)
                yield AliasedSnapshot(
                    Memory(f"{step.path}.{name}"), Line(at) if at is not None else None, write, None, "memory",
                    f"{first}.{name}", certainty="possible",
                )  # fmt: skip
                return


def _told(holding: Holding, write: Write, used: Place, frames: list[FrameType], name: str) -> AliasedSnapshot:
    taken = stored_at(holding.step, frames)
    return AliasedSnapshot(
        Memory(holding.step.path), taken, write, Line(used), "alias", name or "the parameters", certainty="possible"
    )


def _nearest(holding: Holding) -> tuple[bool, int]:
    return holding.step.kind != "local", holding.step.depth


def _read_of(holding: Holding, frames: list[FrameType]) -> Place | None:
    """Where the program reads the slot: on from here for a local name, anywhere in these files for others."""
    root = holding.step.root
    if root.frame is not None and root.kind == "local" and "." not in holding.step.path:
        reads = next_reads(root.frame, root.part, loops=True, after_loops=True)
        return reads[0].place if reads else None
    dotted = holding.step.path.partition("[")[0]
    dotted = dotted.partition("(")[0]
    met: set[str] = set()
    for frame in frames:
        place = frame_place(frame)
        file = syntax.file_of(place.path) if place.path not in met else None
        met.add(place.path)
        found = reads_elsewhere(file, place, dotted, file.tree) if file is not None else None
        if found is not None:
            return found
    return None


def _bound_to(attribute: str, frames: list[FrameType]) -> Place | None:
    """The statement that gives something this attribute."""
    for frame in frames:
        place = frame_place(frame)
        file = syntax.file_of(place.path)
        for node in file.within(file.tree) if file is not None else ():
            targets = node.targets if isinstance(node, ast.Assign) else []
            if file is not None and any(isinstance(t, ast.Attribute) and t.attr == attribute for t in targets):
                return file.place(node, place)  # type: ignore[arg-type]
    return None

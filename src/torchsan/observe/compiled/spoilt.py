"""Lines of a region that change, unseen by autograd, what lines before them have saved.

AOTAutograd traces them as eager runs them: the gradient of the earlier line is computed from the later value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchsan.model.events import Save
from torchsan.observe import nodes
from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.ledger import Ledger, Written
from torchsan.observe.sites import Site
from torchsan.observe.tensors import memory_of, touches


@dataclass(frozen=True, slots=True)
class Spoilt:
    """A line saves a value for its gradient, and a later one writes that past its version."""

    # Which of the region's inputs it is; None for a value that the region itself makes.
    target: int | None
    save: Save
    site: Site
    op: str


class SpoiltCall(NamedTuple):
    """A call in which a line changed, unseen by autograd, what a line before it had saved."""

    began: int
    ended: int
    memory: int | None
    save: Save
    write: Written


def spoilt_by(
    roots: list[Any],
    ledger: Ledger,
    targets: dict[int, int],
    hidden: set[tuple[int, LineSite | None]],
    unseen: set[tuple[int, LineSite | None]],
) -> Iterator[Spoilt]:
    """What torch does not find changed, since its version is what it was, and what was written all the same.

    `targets`: the inputs by their memory. `hidden`: which lines write which of them past its version. `unseen`: the
    same by memory, of what the region itself makes.
    """
    for node in nodes.walk(roots) if hidden or unseen else ():
        number = nodes.sequence(node)
        for saved in nodes.saved_values(node):
            memory = memory_of(saved.tensor) if saved.tensor is not None and not saved.stale else None
            if memory is None or saved.tensor is None or nodes.never_read(saved):
                continue
            target = targets.get(memory)
            for write in ledger.writes.get(memory, ()):
                known = (memory, write.site) in unseen if target is None else (target, write.site) in hidden
                if known and write.before > number and touches(saved.tensor, write.start, write.end):
                    yield Spoilt(target, nodes.describe_save(saved), write.site, write.op)
                    break

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
    """A line saves what the region was given for its gradient, and a later one writes that past its version."""

    target: int
    save: Save
    site: Site


class SpoiltCall(NamedTuple):
    """A call in which a line changed, unseen by autograd, what a line before it had saved."""

    began: int
    ended: int
    memory: int
    save: Save
    write: Written


def spoilt_by(
    roots: list[Any], ledger: Ledger, targets: dict[int, int], hidden: set[tuple[int, LineSite | None]]
) -> Iterator[Spoilt]:
    """What torch does not find changed, since its version is what it was, and what was written all the same.

    `targets`: the inputs by their memory. `hidden`: which lines write which of them past its version.
    """
    for node in nodes.walk(roots) if hidden else ():
        number = nodes.sequence(node)
        for saved in nodes.saved_values(node):
            memory = memory_of(saved.tensor) if saved.tensor is not None and not saved.stale else None
            if memory is None or memory not in targets or saved.tensor is None:
                continue
            for write in ledger.writes.get(memory, ()):
                known = (targets[memory], write.site) in hidden and write.before > number
                if known and touches(saved.tensor, write.start, write.end):
                    yield Spoilt(targets[memory], nodes.describe_save(saved), write.site)
                    break

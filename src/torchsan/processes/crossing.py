"""Weights that parted though every rank did the same to them: did sums of different lines meet each other?"""

from __future__ import annotations

from typing import Any

from torchsan.model import Place
from torchsan.model.events import Line
from torchsan.model.parallel_events import RanksDisagree, Stand
from torchsan.processes.reading import Record
from torchsan.processes.ring import Call, read_ring

# In these every rank gives and gets alike; in others the ranks may have parts, and lines, of their own.
ALIKE = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor")

Window = dict[int, dict[str, Any]]  # for each rank, by group: how many calls it had made


def crossed(ranks: dict[int, Record], before: Window, after: Window) -> RanksDisagree | None:
    """The first call, between two moments, that met one of another line, which the ranks made in another order."""
    calls = {rank: read_ring(ranks[rank].path, ranks[rank].words) for rank in after}
    for group in sorted(set.intersection(*(set(made) for made in after.values()))):
        first = min(made.get(group, 0) for made in before.values()) if before else 0
        last = max(made[group] for made in after.values())
        here = {rank: _between(made.get(group, []), first, last) for rank, made in calls.items()}
        base, *others = sorted(here)
        for other in others:
            found = _pair(here[base], here[other])
            if found is not None:
                return RanksDisagree("order", (_stand(base, found[0]), _stand(other, found[1])), found[0].number)
    return None


def _between(calls: list[Call], first: int, last: int) -> dict[int, Call]:
    return {call.number: call for call in calls if first < call.number <= last and call.what is not None}


def _pair(mine: dict[int, Call], theirs: dict[int, Call]) -> tuple[Call, Call] | None:
    for number in sorted(set(mine) & set(theirs)):
        one, two = mine[number], theirs[number]
        if one.line == two.line or one.what[0] not in ALIKE or two.what[0] not in ALIKE:
            continue
        # Both ranks come by both lines: neither is only what one of them calls it by.
        if any(call.line == two.line for call in mine.values()) and any(c.line == one.line for c in theirs.values()):
            return one, two
    return None


def _stand(rank: int, call: Call) -> Stand:
    place = Place(*call.line)
    return Stand(rank, f"{call.what[0]} of line {place.line}", Line(place))

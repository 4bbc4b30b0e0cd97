"""What can only be seen by laying the records of several ranks side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torchsan.model import Finding, Place
from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import ParallelEvent, RanksDisagree, RankStuck, Stand, StridedCollective
from torchsan.processes.memory import compare_copies, compare_forks, compare_parts, compare_sharing
from torchsan.processes.reading import Record
from torchsan.processes.ring import Call, read_ring
from torchsan.processes.stacks import stood_at
from torchsan.processes.weights import compare_weights, is_consequence

Told = tuple[ParallelEvent, tuple[int, ...]]
Comparison = Callable[[dict[int, Record]], Iterator[Told]]


def compare_ranks(records: list[Record]) -> list[Finding]:
    from torchsan.rules import all_rules

    ranks = {record.rank: record for record in records if record.rank is not None and record.world != 1}
    told: list[Told] = [pair for comparison in COMPARISONS for pair in comparison(ranks)]
    if any(isinstance(event, RanksDisagree | StridedCollective) for event, _ in told):
        # Sums of what does not belong together part the weights: one mistake, one finding.
        told = [(event, on) for event, on in told if not is_consequence(event)]
    told += [(event, ()) for event in (*compare_sharing(records), *compare_forks(records))]
    found = []
    for event, on in told:
        for rule in all_rules().values():
            finding = rule.judge(event, None) if rule.judge is not None and rule.family == "4" else None
            if finding is not None:
                found.append(replace(finding, ranks=on))
    return found


# -- the order of collectives -----------------------------------------------------------------------


def compare_calls(ranks: dict[int, Record]) -> Iterator[Told]:
    """In each group, the first call at which ranks part ways, and the ranks that were left waiting."""
    calls = {rank: read_ring(record.path, record.words) for rank, record in ranks.items()}
    for name, members in _groups(ranks).items():
        if not all(rank in ranks for rank in members):
            continue
        told = list(_compare_group({rank: calls[rank].get(name, []) for rank in members}, ranks))
        yield from told


def _groups(ranks: dict[int, Record]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in ranks.values():
        for fact in record.facts:
            if fact["kind"] == "group":
                found[fact["name"]] = fact["ranks"]
    return {name: members for name, members in found.items() if len(members) > 1}


def _compare_group(calls: dict[int, list[Call]], ranks: dict[int, Record]) -> Iterator[Told]:
    by_number = {rank: {call.number: call for call in made} for rank, made in calls.items()}
    first = max((made[0].number for made in calls.values() if made), default=1)
    last = max((made[-1].number for made in calls.values() if made), default=0)
    everyone = tuple(sorted(calls))
    for number in range(first, last + 1):
        here = {rank: by_number[rank].get(number) for rank in everyone}
        there = {rank: call for rank, call in here.items() if call is not None}
        if len(there) < len(here):
            stuck = [rank for rank, call in there.items() if not call.done]
            if stuck:
                yield _stuck(there, here, ranks, by_number), everyone
            return
        if not _agree(list(there.values())):
            yield _disagree(there, number, by_number), everyone
            return
        layouts = {(call.what[-2], call.what[-1]) for call in there.values() if len(call.what) == 7}
        if len(layouts) > 1 and len({shape for shape, _ in layouts}) == 1:
            one = next(iter(there.values()))
            said = " and ".join(layout or "contiguous" for _, layout in sorted(layouts))
            yield StridedCollective(Memory(""), one.what[0], _line(one.line), "layouts", said), everyone
            return
    if (order := _other_order(calls)) is not None:
        yield order, everyone


def _agree(calls: list[Call]) -> bool:
    """The same op, reduction, root, size and type; shapes may differ as long as they hold as many elements."""
    if any(call.what is None for call in calls):
        return True
    if any(call.what[0].startswith("DDP") for call in calls):
        return len({call.what[0] for call in calls}) == 1
    heads = {tuple(call.what[:5]) for call in calls}
    return len(heads) == 1


def _disagree(there: dict[int, Call], number: int, by_number: dict[int, dict[int, Call]]) -> RanksDisagree:
    stands = tuple(
        Stand(rank, call_words(call), _line(call.line), waits=not call.done) for rank, call in sorted(there.items())
    )
    return RanksDisagree("call", _guilty_first(stands), number, _uneven_loop(there, number, by_number))


def _guilty_first(stands: tuple[Stand, ...]) -> tuple[Stand, ...]:
    """A call that the others passed by comes first: the one that stands earlier in the function they share."""
    lines = [stand.line for stand in stands]
    if any(line is None for line in lines):
        return stands
    functions = {(line.place.path, line.place.function) for line in lines if line is not None}
    if len(functions) > 1:
        return stands
    return tuple(sorted(stands, key=lambda stand: stand.line.place.line if stand.line else 0))


def _uneven_loop(there: dict[int, Call], number: int, by_number: dict[int, dict[int, Call]]) -> Line | None:
    """The loop that one rank has left while another goes round once more."""
    from torchsan.observe import expressions as syntax

    for rank, call in there.items():
        earlier = by_number[rank].get(number - 1)
        rounds = [entry for entry in by_number[rank].values() if entry.line == call.line and entry.number <= number]
        if len(rounds) < 2 or earlier is None or _begins_anew(rounds):
            continue
        loop = syntax.loop_around(_line(call.line).place)
        outside = [other for other in there.values() if other is not call and other.line != call.line]
        if loop is not None and any(not _inside(_line(other.line).place, loop) for other in outside):
            return Line(loop)
    return None


def _begins_anew(rounds: list[Call]) -> bool:
    """Calls of several sizes by one line, and the last is as the first: the loop over them is done and begins again.

    What the other rank has left is then a loop further out.
    """
    first = min(rounds, key=lambda call: call.number)
    last = max(rounds, key=lambda call: call.number)
    return first.what == last.what and any(call.what != first.what for call in rounds)


def _inside(place: Place, loop: Place) -> bool:
    return place.path == loop.path and loop.line <= place.line <= loop.end_line


def _stuck(
    there: dict[int, Call],
    here: dict[int, Call | None],
    ranks: dict[int, Record],
    by_number: dict[int, dict[int, Call]],
) -> RankStuck:
    stands = []
    for rank in sorted(here):
        call = here[rank]
        if call is not None:
            stands.append(Stand(rank, call_words(call), _line(call.line), waits=not call.done))
            continue
        record = ranks[rank]
        where = stood_at(record.path, record.command)
        last = max(by_number[rank].values(), key=lambda entry: entry.number, default=None)
        line = Line(where) if where is not None else _line(last.line) if last is not None else None
        words = "stood here" if where is not None else "was last seen here" if last is not None else "never came"
        stands.append(Stand(rank, record.outcome or words, line))
    return RankStuck(tuple(stands))


def _other_order(calls: dict[int, list[Call]]) -> RanksDisagree | None:
    """The same tensors, by their names, in another order: sizes agree, and yet the wrong ones are added up."""
    base, *others = sorted(calls)
    mine = {call.number: call for call in calls[base] if call.names}
    for other in others:
        theirs = {call.number: call for call in calls[other] if call.names}
        for number in sorted(set(mine) & set(theirs)):
            one, two = mine[number], theirs[number]
            if set(one.names) & set(two.names):
                continue
            near = range(number - 64, number + 65)
            swapped = any(n in theirs and set(theirs[n].names) & set(one.names) for n in near)
            back = any(n in mine and set(mine[n].names) & set(two.names) for n in near)
            if swapped and back:
                stands = (
                    Stand(base, f"{one.what[0]} of {one.names[0]}", _line(one.line)),
                    Stand(other, f"{two.what[0]} of {two.names[0]}", _line(two.line)),
                )
                return RanksDisagree("order", stands, number)
    return None


def call_words(call: Call) -> str:
    if call.what is None:
        return "a collective"
    if len(call.what) < 7:
        return str(call.what[0])
    op, reduction, root, _, kind, shapes, _ = call.what
    kind_of = f" ({reduction})" if op in ("all_reduce", "reduce") and reduction and reduction != "SUM" else ""
    source = f" from rank {root}" if op in ("broadcast", "scatter") and root >= 0 else ""
    return f"{op}{kind_of} of {kind} {shapes[1:-1]}{source}"


def _line(data: Any) -> Line:
    path, line, column, end_line, end_column, function = data
    return Line(Place(path, line, column, end_line, end_column, function))


COMPARISONS: list[Comparison] = [compare_calls, compare_weights, compare_parts, compare_copies]

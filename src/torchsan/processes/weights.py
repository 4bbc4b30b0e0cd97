"""Weights that should be equal on all ranks and are not: when they parted, and which line is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchsan.model import Place
from torchsan.model.events import Line
from torchsan.model.parallel_events import RanksDisagree, ReplicasDiverged
from torchsan.processes.crossing import Window, crossed
from torchsan.processes.reading import Record

Facts = dict[int, list[dict[str, Any]]]  # by rank, in order
Moment = dict[int, dict[str, Any]]  # what each rank had at one moment
# Sums that went wrong: steps on them part the weights, and no line that touches the weights is to blame.
EXPLAINING = ("TS401", "TS402", "TS403", "TS404")
CONSEQUENCES = ("unknown", "unsynced", "skipped")


def compare_weights(
    ranks: dict[int, Record],
) -> Iterator[tuple[ReplicasDiverged | RanksDisagree, tuple[int, ...]]]:
    told_elsewhere = any(f.code == "TS411" for record in ranks.values() for f in record.findings)
    told_elsewhere |= any(fact["kind"] == "ddp_shared" for record in ranks.values() for fact in record.facts)
    explained = any(f.code in EXPLAINING for record in ranks.values() for f in record.findings)
    optimizers = {fact["optimizer"] for record in ranks.values() for fact in _weights(record)}
    for number in sorted(optimizers):
        facts = {rank: [f for f in _weights(record) if f["optimizer"] == number] for rank, record in ranks.items()}
        facts = {rank: found for rank, found in facts.items() if found}
        if len(facts) < 2 or told_elsewhere or len(facts) < len(ranks):
            continue
        event = _diverged(facts, ranks)
        if explained and is_consequence(event):
            continue  # one mistake, one finding
        if event is not None:
            yield event, tuple(sorted(facts))


def is_consequence(event: object) -> bool:
    """Weights that parted because of sums, not because of a line that can be told."""
    return isinstance(event, ReplicasDiverged) and event.cause in CONSEQUENCES


def _weights(record: Record) -> list[dict[str, Any]]:
    return [fact for fact in record.facts if fact["kind"] == "weights"]


def _diverged(facts: Facts, ranks: dict[int, Record]) -> ReplicasDiverged | RanksDisagree | None:
    moments = _in_common(facts)
    if not moments or not _meant_equal(facts, moments):
        return None
    # Where ranks may end early, the same count of steps is not the same moment.
    if any(fact["joined"] for found in facts.values() for fact in found):
        return None
    # Weights that are averaged now and then may differ in between: how the last average left them is what counts.
    # Sums are made by all ranks, though memory that is used again may hide some of them on one.
    averaged = [at for at in moments if any(fact["averaged"] and _late(fact) for fact in at.values())]
    if not averaged and any(fact["averaged"] and fact["step"] for found in facts.values() for fact in found):
        return None
    last = averaged[-1] if averaged else moments[-1]
    different = sorted(set(_different(last)) - _made_equal(moments))
    if not different:
        return None
    names: list[str] = next((fact["names"] for found in facts.values() for fact in found if "names" in fact), [])
    told = tuple(names[i] if i < len(names) else f"parameter {i}" for i in different[:4])
    cause, line, detail = _cause(facts, moments, ranks, set(different))
    if cause == "unknown" and (order := crossed(ranks, *_parted(moments, set(different)))) is not None:
        return order
    seen = _line(next(iter(last.values()))["line"])
    step = next(iter(last.values()))["step"]
    return ReplicasDiverged(told, tuple(sorted(facts)), cause, line or seen, seen, detail, step)  # type: ignore[arg-type]


def _in_common(facts: Facts) -> list[Moment]:
    """The moments at which every rank was looked at, in order: after a step, before the next one, at the end."""
    by_mark = {rank: {(f["step"], f["when"]): f for f in found} for rank, found in facts.items()}
    common = set.intersection(*(set(marks) for marks in by_mark.values()))
    ordered = sorted(common, key=lambda mark: (mark[0], ("after", "before", "end").index(mark[1])))
    return [{rank: marks[mark] for rank, marks in by_mark.items()} for mark in ordered]


def _late(fact: dict[str, Any]) -> bool:
    """After an average between two steps; one before the first step is only how the program makes its start equal."""
    return bool(fact["step"]) and fact["when"] != "after"


def _meant_equal(facts: Facts, moments: list[Moment]) -> bool:
    """DDP has them, their gradients were summed, or copies of gradients were and some came back equal to all ranks."""
    if all(any(fact["intended"] for fact in found) for found in facts.values()):
        return True
    if not all(any(fact["intended"] or fact["gradients"] for fact in found) for found in facts.values()):
        return False
    columns = (zip(*(fact["gradients"] for fact in at.values()), strict=False) for at in moments)
    return any(values[0] and len(set(values)) == 1 for rows in columns for values in rows)


def _parted(moments: list[Moment], different: set[int]) -> tuple[Window, Window]:
    """How many collectives each rank had made at the last step after which these weights were equal, and at the next
    look. What a step uses was summed before it: a look before the step does not tell."""
    equal: Window = {}
    for at in moments:
        calls = {rank: fact["calls"] for rank, fact in at.items()}
        if set(_different(at)) & different:
            return equal, calls
        if next(iter(at.values()))["when"] == "after":
            equal = calls
    return equal, {}


def _made_equal(moments: list[Moment]) -> set[int]:
    """Weights that were different and became equal again: the program sees to them itself."""
    apart: set[int] = set()
    again: set[int] = set()
    for at in moments:
        different = set(_different(at))
        again |= apart - different
        apart |= different
    return again


def _different(at: dict[int, dict[str, Any]]) -> list[int]:
    columns = zip(*(fact["digests"] for fact in at.values()), strict=False)
    ignored = {index for fact in at.values() for index in fact["ignored"]}
    return [index for index, values in enumerate(columns) if len(set(values)) > 1 and index not in ignored]


def _cause(
    facts: Facts, moments: list[Moment], ranks: dict[int, Record], different: set[int]
) -> tuple[str, Line | None, str]:
    settings = {rank: found[-1]["settings"] for rank, found in facts.items()}
    if len({str(value) for value in settings.values()}) > 1:
        same_at_first = len({str(found[0].get("born") or found[0]["settings"]) for found in facts.values()}) == 1
        tuned = next((found[-1]["tuned"] for found in facts.values() if found[-1]["tuned"]), None)
        made = next((found[0]["made"] for found in facts.values() if found[0]["made"]), None)
        # Where they were the same at first, the line that made the optimizer has nothing to do with it.
        made = tuned if same_at_first else made
        detail = "; ".join(f"rank {rank}: {value[0]}" for rank, value in sorted(settings.items()) if value)
        return "settings", _line(made), detail
    alone = _written_on_some(facts, different)
    if alone is not None:
        return "written", alone[0], alone[1]
    first = {rank: found[0] for rank, found in facts.items()}
    if all(fact["when"] == "before" for fact in first.values()) and set(_different(first)) & different:
        if all(fact["wrapped"] for fact in first.values()):
            for parameter, op, line in (write for fact in first.values() for write in fact["writes"]):
                if parameter in different:
                    return "written", _line(line), f"{op} writes another value on each rank"
        return _start(facts, ranks)
    for at in moments[1:]:
        if not set(_different(at)) & different:
            continue
        for fact in at.values():
            for parameter, op, line in fact["writes"]:
                if parameter in different:
                    return "written", _line(line), f"{op} writes another value on each rank"
        if any(not fact["synced"] for fact in at.values()):
            return "unsynced", _line(at[min(at)]["line"]), ""
        passed_over = _passed_over(facts, ranks)
        return "skipped" if passed_over else "unknown", _line(at[min(at)]["line"]), passed_over
    return "unknown", None, ""


def _passed_over(facts: Facts, ranks: dict[int, Record]) -> str:
    """In words: after as many sums, some ranks have made fewer steps than others, and their weights differ."""
    ends = {rank: found[-1] for rank, found in facts.items() if found[-1]["when"] == "end"}
    if len(ends) == len(facts) and not _different(ends):
        return ""  # made equal again; by their steps the last records are not of one moment
    optimizer = next(iter(facts.values()))[0]["optimizer"]
    looks = {
        rank: {fact["sums"]: fact for fact in record.facts if fact["kind"] == "sums" and fact["optimizer"] == optimizer}
        for rank, record in ranks.items()
    }
    common = set.intersection(*(set(found) for found in looks.values()))
    if not common:
        return ""
    sums = max(common)
    at = {rank: found[sums] for rank, found in looks.items()}
    steps = {rank: fact["steps"] for rank, fact in at.items()}
    calls, digests = ([fact[key] for fact in at.values()] for key in ("calls", "digests"))
    if (
        len(set(steps.values())) == 1
        or any(one != calls[0] for one in calls)
        or all(one == digests[0] for one in digests)
    ):
        return ""
    said = ", ".join(f"{count} on rank {rank}" for rank, count in sorted(steps.items()))
    return f"before sum {sums} of gradients, steps made: {said}"


def _written_on_some(facts: Facts, different: set[int]) -> tuple[Line, str] | None:
    """A line that wrote these parameters on some ranks and never on others."""
    lines: dict[str, tuple[Any, str, set[int]]] = {}
    for rank, found in facts.items():
        for fact in found:
            for parameter, op, line in fact["writes"]:
                if parameter in different:
                    lines.setdefault(str(line[:2]), (line, op, set()))[2].add(rank)
    for line, op, on in lines.values():
        if len(on) < len(facts):
            return _must(line), f"{op} on rank {', '.join(map(str, sorted(on)))} only"
    return None


def _start(facts: Facts, ranks: dict[int, Record]) -> tuple[str, Line | None, str]:
    """Different from the first step on: the seed that was set last before, if it differs."""
    seeds: dict[str, dict[int, Any]] = {}
    for rank in facts:
        for fact in ranks[rank].facts:
            if fact["kind"] == "weights":
                break
            if fact["kind"] == "seed":
                seeds.setdefault(str(fact["line"][:2]), {})[rank] = fact
    for by_rank in reversed(list(seeds.values())):
        if len({fact["value"] for fact in by_rank.values()}) > 1 or len(by_rank) < len(facts):
            detail = ", ".join(f"{fact['value']} on rank {rank}" for rank, fact in sorted(by_rank.items()))
            return "start", _line(next(iter(by_rank.values()))["line"]), f"the seed is {detail}"
    made = next((found[0]["made"] for found in facts.values() if found[0]["made"]), None)
    return "start", _line(made), ""


def _line(row: Any) -> Line | None:
    return Line(Place(*row)) if row else None


def _must(row: Any) -> Line:
    return Line(Place(*row))

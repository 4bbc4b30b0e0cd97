"""Memory of one process beside that of another: shared where it should not be, different where it should not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchsan.model import Place
from torchsan.model.events import Line, Memory
from torchsan.model.parallel_events import ShardTouched, SharedMemory
from torchsan.processes.reading import Record


def compare_sharing(records: list[Record]) -> Iterator[SharedMemory]:
    """Gradients or wrapped weights that several processes have in one piece of memory."""
    shared_by = {f["key"]: f["line"] for record in records for f in record.facts if f["kind"] == "shared_by"}
    for kind, form in (("ddp_shared", "ddp"), ("gradient_shared", "gradients")):
        users: dict[str, dict[str, Any]] = {}
        for record in records:
            for fact in record.facts:
                if fact["kind"] == kind:
                    users.setdefault(fact["key"], {})[record.path] = fact
        for key, by_process in users.items():
            if len(by_process) < 2:
                continue
            fact = next(iter(by_process.values()))
            used = Line(Place(*fact["line"]))
            shared = Line(Place(*shared_by[key])) if key in shared_by else used
            other = used if shared is not used else None
            detail = str(len(by_process))
            yield SharedMemory(form, Memory(fact.get("name", "")), shared, other, detail)  # type: ignore[arg-type]
            break


def compare_forks(records: list[Record]) -> Iterator[SharedMemory]:
    """Models that a child has trained for itself, and that its parent has left as they were and goes on with."""
    untouched = {(r.pid, f["name"]): f for r in records for f in r.facts if f["kind"] == "untouched"}
    told: set[str] = set()
    for record in records:
        for fact in record.facts:
            theirs = untouched.get((record.parent, fact["name"])) if fact["kind"] == "own_copy" else None
            # Who sends numbers back may have wanted no more than these, unless the model is run again.
            if theirs is not None and (theirs["used"] or not fact["sent"]) and str(fact["line"]) not in told:
                told.add(str(fact["line"]))
                yield SharedMemory("own-copy", Memory(fact["name"]), Line(Place(*fact["line"])))


def compare_parts(ranks: dict[int, Record]) -> Iterator[tuple[ShardTouched, tuple[int, ...]]]:
    """What each rank does to its part or its copy of one DTensor."""
    for kind, value, form in (("replicate", "digest", "replicas-differ"), ("part", "values", "parts-differ")):
        visits: dict[str, dict[int, dict[str, Any]]] = {}
        for rank, record in ranks.items():
            for fact in record.facts:
                if fact["kind"] == kind:
                    visits.setdefault(str((fact["line"], fact["visit"])), {})[rank] = fact
        for by_rank in visits.values():
            if len(by_rank) > 1 and len({str(fact[value]) for fact in by_rank.values()}) > 1:
                line = Line(Place(*next(iter(by_rank.values()))["line"]))
                said = ", ".join(f"{_said(fact)} on rank {rank}" for rank, fact in sorted(by_rank.items()))
                detail = said if form == "parts-differ" else ""
                on = tuple(sorted(by_rank))
                made = next((fact["made"] for fact in by_rank.values() if fact.get("made")), None)
                other = Line(Place(*made)) if made is not None else None
                yield ShardTouched(form, Memory(""), line, other, detail, on), on  # type: ignore[arg-type]
                break


def compare_copies(ranks: dict[int, Record]) -> Iterator[tuple[ShardTouched, tuple[int, ...]]]:
    """Copies of one replicated DTensor that were written through `to_local()`: the first read of different ones."""
    visits: dict[str, dict[int, dict[str, Any]]] = {}
    for rank, record in ranks.items():
        for fact in record.facts:
            if fact["kind"] == "copy":
                visits.setdefault(str((fact["line"], fact["visit"])), {})[rank] = fact
    for by_rank in visits.values():
        written = next((fact["written"] for fact in by_rank.values() if fact["written"]), None)
        if written is None or len(by_rank) < len(ranks) or len({fact["digest"] for fact in by_rank.values()}) == 1:
            continue
        on = tuple(sorted(by_rank))
        read = Line(Place(*next(iter(by_rank.values()))["line"]))
        yield ShardTouched("replicas-parted", Memory(""), Line(Place(*written)), read, "", on), on
        return


def _said(fact: dict[str, Any]) -> str:
    return ", ".join(fact.get("values", []))

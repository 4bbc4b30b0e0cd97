"""One report of many journals: equal findings of several ranks are one, and ranks are compared with each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchsan.model import Finding, Lane, Process, Report, Timeline
from torchsan.processes.compare import compare_ranks
from torchsan.processes.reading import Record


def merge(records: list[Record], own: Report | None = None, own_pid: int | None = None) -> Report:
    """The report of a run. `own` is that of the process which merges, fuller than its journal."""
    watched = [record for record in records if record.watched or record.findings]
    report = Report(command=own.command if own else [], torch=own.torch if own else None)
    if own is not None:
        report.extra, report.captures = dict(own.extra), list(own.captures)
        report.memory = own.memory
    _by_process = {record.pid: record for record in records}
    merged: dict[tuple[object, ...], Finding] = {}
    for record in watched:
        mine = own is not None and record.pid == own_pid
        ranks = _ranks_of(record, _by_process)
        for finding in own.findings if mine and own is not None else record.findings:
            _add(merged, finding, ranks)
        notes = own.notes if mine and own is not None else record.notes
        report.notes.extend(note for note in notes if note not in report.notes)
        report.torch = report.torch or record.torch
        if record.stepped_aside is not None:
            report.extra.setdefault("stepped_aside", record.stepped_aside)
    for finding in compare_ranks(watched):
        _add(merged, finding, finding.ranks)
    report.findings = list(merged.values())
    report.processes = [_process(record, _by_process) for record in watched] if len(watched) > 1 else []
    report.notes.extend(_unfollowed(records))
    report.timeline = _timelines(watched, own, own_pid, list(merged))
    return report


def _ranks_of(record: Record, by_process: dict[int, Record]) -> tuple[int, ...]:
    """The rank of a process, or of the one that it works for."""
    at: Record | None = record
    for _ in range(8):
        if at is None or at.rank is not None:
            break
        at = by_process.get(at.parent)
    return (at.rank,) if at is not None and at.rank is not None else ()


def _add(merged: dict[tuple[object, ...], Finding], finding: Finding, ranks: Iterable[int]) -> None:
    known = merged.get(finding.key)
    if known is None:
        merged[finding.key] = replace(finding, ranks=tuple(sorted(set(ranks))))
    else:
        together = tuple(sorted({*known.ranks, *ranks}))
        merged[finding.key] = replace(known, count=known.count + finding.count, ranks=together)


def _process(record: Record, by_process: dict[int, Record]) -> Process:
    ranks = _ranks_of(record, by_process)
    outcome = record.outcome or ("running" if record.running else "died without a word")
    return Process(ranks[0] if ranks else None, record.pid, record.role, outcome)


def _unfollowed(records: list[Record]) -> list[str]:
    known = {record.pid for record in records}
    return [
        f"process {pid} ({what}) could not be followed: what happens in it is not watched"
        for record in records
        for pid, what in record.children.items()
        if pid not in known
    ]


def _timelines(
    watched: list[Record], own: Report | None, own_pid: int | None, keys: list[tuple[object, ...]]
) -> Timeline | None:
    """The lanes of all processes, each under its rank."""
    if len(watched) == 1 and own is not None:
        return own.timeline
    found: list[tuple[Record, Timeline, list[Finding]]] = []
    for record in watched:
        mine = own is not None and record.pid == own_pid
        if mine and own is not None and own.timeline is not None:
            found.append((record, own.timeline, own.findings))
        elif record.timeline is not None:
            found.append((record, Timeline.from_json(record.timeline), record.findings))
    if not found:
        return None
    lanes = []
    for record, timeline, findings in found:
        name = f"rank {record.rank}" if record.rank is not None else f"process {record.pid}"
        places = {index: keys.index(f.key) for index, f in enumerate(findings) if f.key in keys}
        for lane in timeline.lanes:
            lanes.append(_renamed(lane, name, places))
    return Timeline(lanes, sum(timeline.dropped for _, timeline, _ in found))


def _renamed(lane: Lane, process: str, findings: dict[int, int]) -> Lane:
    moments = [
        replace(moment, finding=findings.get(moment.finding) if moment.finding is not None else None)
        for moment in lane.moments
    ]
    return replace(lane, module=f"{process}.{lane.module}".rstrip("."), moments=moments)

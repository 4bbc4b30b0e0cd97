"""Reading the journals of a run."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from typing import Any

from torchsan.model import Finding
from torchsan.processes.journal import SUFFIX, is_running


@dataclass(slots=True)
class Record:
    """One process, as far as its journal tells."""

    path: str
    pid: int = 0
    parent: int = 0
    host: str = ""
    role: str = ""
    rank: int | None = None
    world: int = 0
    started: str = ""
    command: list[str] = field(default_factory=list)
    torch: str | None = None
    watched: bool = False
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outcome: str | None = None
    stepped_aside: str | None = None  # why the recorder gave up there
    timeline: Any = None
    children: dict[int, str] = field(default_factory=dict)
    # What the numbers in its ring of collectives stand for.
    words: dict[int, Any] = field(default_factory=dict)
    # What the rules that compare ranks need, by its kind, in order.
    facts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.outcome is not None

    @property
    def running(self) -> bool:
        return not self.ended and self.host == socket.gethostname() and is_running(self.pid, self.started)


def read_folder(folder: str) -> list[Record]:
    """All journals of a folder, in the order in which their processes began."""
    names = sorted(
        (name for name in os.listdir(folder) if name.endswith(SUFFIX)), key=lambda name: name.rpartition("-")[2]
    )
    records = [read(os.path.join(folder, name)) for name in names]
    return [record for record in records if record.pid]


def read(path: str) -> Record:
    record = Record(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return record
    for line in lines:
        try:
            data = json.loads(line)
            _take(record, data)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the last line of a process that was killed while it wrote
    return record


def _take(record: Record, data: dict[str, Any]) -> None:
    kind = data["kind"]
    if kind == "process":
        for name in ("pid", "parent", "host", "rank", "role", "started", "command"):
            setattr(record, name, data[name])
    elif kind == "watching":
        record.watched, record.torch = True, data["torch"]
    elif kind == "rank":
        record.rank, record.world = data["rank"], data["world"]
    elif kind == "finding":
        record.findings.append(Finding.from_json(data["finding"]))
    elif kind == "child":
        record.children[data["pid"]] = data["what"]
    elif kind == "word":
        record.words[data["number"]] = data["value"]
    elif kind == "timeline":
        record.timeline = data["timeline"]
    elif kind == "end":
        record.outcome = data["outcome"]
        if data["findings"]:
            record.findings = [Finding.from_json(finding) for finding in data["findings"]]
        record.notes = data["notes"]
        record.stepped_aside = data.get("stepped_aside")
    else:
        record.facts.append(data)

"""What every process of a run must know; handed down in the environment."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VARIABLE = "TORCHSAN_RUN"


@dataclass(slots=True)
class RunOptions:
    """The run's folder, who makes the report, and how to watch."""

    folder: str
    root: int  # the process that was started by hand
    kept: bool = False  # the folder was asked for, or is shared: it stays when the report is made
    expected: int = 1  # how many processes of this machine were started as roots of the same run
    fail_fast: bool = False
    at_write: bool = False
    eager: bool = False
    memory: bool = False
    timeline: bool = False
    steps: int = 0
    user_roots: list[str] = field(default_factory=list)
    output: dict[str, Any] = field(default_factory=dict)  # how and where the report goes
    command: list[str] = field(default_factory=list)

    def into(self, environment: dict[str, str] | os._Environ[str]) -> None:
        environment[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> RunOptions | None:
        """The run that this process is part of; None when it is part of none or of one that is over."""
        try:
            found = cls(**json.loads(environment[VARIABLE]))
        except (KeyError, ValueError, TypeError):
            return None
        return found if os.path.isdir(found.folder) else None


def started_by_launcher(environment: Mapping[str, str]) -> bool:
    """Is this one of several processes that a launcher such as torchrun started with the same command?"""
    return all(name in environment for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))


def launched_here(environment: Mapping[str, str]) -> int:
    """How many of them are on this machine."""
    for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        if environment.get(name, "").isdigit():
            return max(1, int(environment[name]))
    return 1


def shared_folder(environment: Mapping[str, str]) -> str:
    """A folder that all processes of one launcher find without asking each other."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    marks = [str(os.getppid()), str(os.getuid()), *(environment.get(name, "") for name in names)]
    name = hashlib.sha256("\0".join(marks).encode()).hexdigest()[:16]
    folder = os.path.join(tempfile.gettempdir(), f"torchsan-{name}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder

"""Results by content, in one sqlite file of the user's cache folder. Any trouble with it means no cache."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

from torchsan.check.analyse import Result
from torchsan.check.reading.project import state_of
from torchsan.effects import table_version
from torchsan.model.source import shown_path
from torchsan.version import __version__

Stamp = tuple[int, int]
ROOMS = ("choosing", "reading", "modelling", "telling", "following", "capturing")


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "torchsan"


def fingerprint() -> str:
    """Changes whenever the tool would answer differently: version, Python, and our own files."""
    root = Path(__file__).parent.parent
    parts = [__version__, table_version(), sys.version]
    rooms = [f"check/{room}" for room in ROOMS]
    for folder in ("check", *rooms, "rules", "effects", "fix", "fix/rewrites"):
        parts += [f"{e.name}{e.stat().st_mtime_ns}" for e in sorted(os.scandir(root / folder), key=lambda e: e.name)]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


class Cache:
    """`stamps` avoids reading files that have not been touched, `results` holds what content gave."""

    def __init__(
        self, folder: Path | None, *, possible: bool = False, thorough: bool = True, modules: bool = False
    ) -> None:
        self.database: sqlite3.Connection | None = None
        self.stamps: dict[str, tuple[int, int, str]] = {}
        self.known: dict[str, str] = {}
        # Of files that results hang on, as they are now.
        self.states: dict[str, str] = {}
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            asked = "-possible" * possible + "-quick" * (not thorough) + "-modules" * modules
            self.database = sqlite3.connect(folder / f"check-{fingerprint()}{asked}.db", timeout=2)
            self.database.execute("CREATE TABLE IF NOT EXISTS results (digest TEXT PRIMARY KEY, data TEXT)")
            self.database.execute(
                "CREATE TABLE IF NOT EXISTS stamps (path TEXT PRIMARY KEY, size INT, time INT, digest TEXT)"
            )
            self.stamps = {p: (s, t, d) for p, s, t, d in self.database.execute("SELECT * FROM stamps")}
            self.known = dict(self.database.execute("SELECT digest, data FROM results"))
        except (OSError, sqlite3.Error):
            self.database = None

    def by_stamp(self, path: str, stamp: Stamp) -> Result | None:
        known = self.stamps.get(os.path.abspath(path))
        if known is None or known[:2] != stamp:
            return None
        return self._result(path, known[2])

    def by_content(self, path: str, digest: str) -> Result | None:
        return self._result(path, digest)

    def _result(self, path: str, digest: str) -> Result | None:
        data = self.known.get(digest)
        if data is None:
            return None
        if data == "":
            return Result(shown_path(path))
        known = Result.from_json(shown_path(path), json.loads(data))
        return known if all(self._state(p) == state for p, state in known.needs.items()) else None

    def _state(self, path: str) -> str:
        if path not in self.states:
            self.states[path] = state_of(path)
        return self.states[path]

    def store(self, entries: Iterable[tuple[str, Stamp, str, Result]]) -> None:
        if self.database is None:
            return
        rows = list(entries)
        try:
            with self.database:
                self.database.executemany(
                    "INSERT OR REPLACE INTO results VALUES (?, ?)", [(d, _packed(r)) for _, _, d, r in rows]
                )
                self.database.executemany(
                    "INSERT OR REPLACE INTO stamps VALUES (?, ?, ?, ?)",
                    [(os.path.abspath(p), s[0], s[1], d) for p, s, d, _ in rows],
                )
        except sqlite3.Error:
            self.database = None


def _packed(result: Result) -> str:
    """Most files have nothing to say."""
    empty = not (result.findings or result.remarks or result.error or result.needs)
    return "" if empty else json.dumps(result.as_json())


def digest_of(path: str, data: bytes) -> str:
    # The path is part of it: it stands in the findings.
    return hashlib.blake2b(shown_path(path).encode() + b"\0" + data, digest_size=16).hexdigest()

"""The log of writes, by memory. Bounded: thousands of steps leave it no larger than ten do."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchsan.model.events import WriteKind
from torchsan.observe.sites import Site

MAX_MEMORIES = 20_000
MAX_WRITES_PER_MEMORY = 64
MAX_STEPS = 512
# A silent write is looked for in this many backward passes; graphs that live longer are rare.
SILENT_LIFE = 8


class Written(NamedTuple):
    """One write: `before` is the sequence number that the next autograd node would have had."""

    before: int
    site: Site
    op: str
    version: int
    kind: WriteKind = "op"
    start: int = 0
    end: int = 1 << 62
    maker: Site | None = None


@dataclass(slots=True)
class Stepped:
    """One `optimizer.step()`."""

    before: int
    site: Site
    optimizer: weakref.ref[Any]
    name: str
    memories: frozenset[int]
    silent: bool
    passes: int = 0
    # Optimizers that are not torch's own write through ops that the ledger has seen one by one.
    logged: bool = False
    # Made inside autocast, whose cached copies of the weights stay as they were.
    autocast: bool = False
    number: int = 0


class WriteLog(Mapping[int, list[Written]]):
    """The last writes of each memory. Kept as plain tuples, which is all that a write can afford to make."""

    def __init__(self) -> None:
        self.raw: dict[int, deque[tuple[Any, ...]]] = {}

    def add(self, memory: int, write: tuple[Any, ...]) -> None:
        """Note a `Written`, or as much of one as `(before, site, op, version)`."""
        known = self.raw.get(memory)
        if known is None:
            if len(self.raw) >= MAX_MEMORIES:
                for old in list(self.raw)[: MAX_MEMORIES // 2]:
                    del self.raw[old]
            known = self.raw[memory] = deque(maxlen=MAX_WRITES_PER_MEMORY)
        known.append(write)

    def forget_before(self, number: int) -> None:
        """Drop memory that was last written before this: no graph that is still of use is that old."""
        for memory, writes in list(self.raw.items()):
            if writes and writes[-1][0] < number:
                self.raw.pop(memory, None)

    def __getitem__(self, memory: int) -> list[Written]:
        # Threads write while we look.
        return [w if type(w) is Written else Written(*w) for w in self.raw[memory].copy()]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.raw))

    def __len__(self) -> int:
        return len(self.raw)


class Ledger:
    def __init__(self) -> None:
        self.log = WriteLog()
        # What answers for the log: this one, or that of the native part.
        self.writes: Mapping[int, list[Written]] = self.log
        # Brings silent writes that were noted elsewhere.
        self.pull: Callable[[], None] = lambda: None
        self.silent: dict[int, list[tuple[Written, int]]] = {}
        self.steps: deque[Stepped] = deque(maxlen=MAX_STEPS)
        self.steps_made = 0
        # Whether there was a step inside autocast, and how many passes there had been at the last silent one.
        self.autocast = False
        self.last_silent = -SILENT_LIFE
        self.backwards = 0
        # Backward passes: when each began, and its line. They add to the gradients that are there.
        self.passes: deque[tuple[int, Site]] = deque(maxlen=MAX_STEPS)

    def add(self, memory: int, write: Written) -> None:
        self.log.add(memory, write)

    def add_step(self, step: Stepped) -> None:
        self.steps_made += 1
        step.number = self.steps_made
        self.autocast = self.autocast or step.autocast
        if step.silent:
            self.last_silent = step.passes
        self.steps.append(step)

    def add_silent(self, memory: int, write: Written) -> None:
        self.silent.setdefault(memory, []).append((write, self.backwards))

    def suspect(self) -> None:
        """Something was written silently, in memory that nobody can find it by: inside a compiled region."""
        self.last_silent = self.backwards

    def finish_backward(self) -> None:
        """A backward ended: drop what can no longer matter."""
        self.backwards += 1
        if self.backwards % MAX_STEPS == 0 and len(self.passes) == MAX_STEPS:
            self.log.forget_before(self.passes[0][0])
        for memory in list(self.silent) if self.silent else ():
            young = [entry for entry in self.silent[memory] if self.backwards - entry[1] < SILENT_LIFE]
            if young:
                self.silent[memory] = young
            else:
                del self.silent[memory]

    def suspicious(self) -> bool:
        """True when something was written behind the version counter not long ago."""
        self.pull()
        return bool(self.silent) or self.backwards - self.last_silent < SILENT_LIFE

    def writes_of(self, memory: int) -> list[Written]:
        """Logged writes of this memory, oldest first: the native part's, and those of compiled regions."""
        found = self.writes.get(memory, [])
        if self.writes is self.log or memory not in self.log.raw:
            return found
        return sorted([*found, *self.log[memory]], key=lambda write: write.before)

    def after(self, memory: int, sequence: int, version: int | None) -> list[Written]:
        """Logged writes of this memory later than a save, oldest first."""
        found = self.writes_of(memory)
        if version is not None:
            by_version = [w for w in found if w.version > version and w.before > sequence]
            if by_version:
                return by_version
        return [w for w in found if w.before > sequence]

    def by_versions(self, sequence: int, expected: int, current: int) -> list[Written]:
        """Writes that fit a save of which only the versions are known; empty when several memories fit."""
        fits = [
            later
            for memory in {*self.writes, *self.log}
            if (writes := self.writes_of(memory))
            and writes[-1].version == current
            and (later := [w for w in writes if w.version > expected and w.before > sequence])
            and later[0].version == expected + 1
        ]
        places = {later[0].site for later in fits}
        return fits[0] if len(places) == 1 else []

    def accumulated_after(self, sequence: int, times: int) -> list[Written]:
        """The backward passes since a save, if a gradient that was written so many times must have been by them all."""
        later = [(before, site) for before, site in self.passes if before > sequence]
        if len(later) != times:
            return []
        return [Written(before, site, "backward", 0) for before, site in later]

    def steps_after(self, memory: int, sequence: int, *, silent_only: bool = False) -> Iterable[Stepped]:
        for step in self.steps:
            if step.logged or step.before <= sequence or memory not in step.memories:
                continue
            if step.silent or not silent_only:
                yield step

"""How numbers of live nodes go from step to step, and whether what was suspected has gone on."""

from __future__ import annotations

from dataclasses import dataclass

from torchsan.model.memory_events import GraphKept
from torchsan.observe.kept.carriers import LineKey
from torchsan.observe.kept.catching import Catcher

# A line is looked at when its nodes have become more so many times, and never fewer in between.
MARKING = 3
# What is bounded was full some time: a line must go on to rise at this share of its rate before. Judged where its rate
# promises so many rises; one that was to rise twice and did not rise at all has stopped.
GOES_ON, JUDGED, STOPPED = 0.4, 3, 2
# When so small a share of the nodes is left, the graphs were let go: a window, an episode, an epoch's list.
LET_GO = 0.6


@dataclass(slots=True)
class Course:
    """How the number of live nodes of one line has gone."""

    last: int
    since: int
    rises: int = 0
    look_at: int = MARKING
    risen_at: int = 0

    def falls(self, count: int) -> bool:
        return count < LET_GO * self.last

    def rises_to(self, count: int, tick: int) -> bool:
        """Is it time to look who holds them?"""
        if count <= self.last:
            return False
        self.last, self.risen_at = count, tick
        self.rises += 1
        if self.rises < self.look_at:
            return False
        self.look_at = 2 * self.rises
        return True

    def rate(self, tick: int) -> float:
        """How often it has risen, per step."""
        return self.rises / max(1, tick - self.since)


@dataclass(slots=True)
class Suspect:
    """A holder that was found, waiting for the end of the run."""

    event: GraphKept
    line: LineKey
    tick: int
    catcher: Catcher | None = None
    refuted: bool = False
    # The largest count since; none yet, since looking itself holds references.
    most: int | None = None
    later_rises: int = 0
    rate: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        return self.event.held.place, self.event.holder.name

    def counted(self, count: int) -> None:
        if self.most is None:
            self.most = count
        elif count < LET_GO * self.most:
            self.refuted = True
        elif count > self.most:
            self.later_rises += 1
            self.most = count

    def goes_on(self, tick: int) -> bool:
        # The count right after the look is what later ones are compared with.
        promised = self.rate * (tick - self.tick - 1)
        if promised >= STOPPED and self.later_rises == 0:
            return False
        return promised < JUDGED or self.later_rises >= GOES_ON * promised

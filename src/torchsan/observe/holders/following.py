"""Lines of which more visits than others are looked at, to see whether they come to the same bytes again."""

from __future__ import annotations

from torchsan.observe.sites import Site

# Visits of a line that transforms stored memory, which is followed for longer than others. The native part knows the
# same number.
FOLLOWED = 512
# How often such a line is looked at when it has come to the same bytes again; then it is a line like others.
AGAIN = 8


class Following:
    def __init__(self) -> None:
        self._lines: set[Site] = set()
        self._again: dict[Site, int] = {}

    def follows(self, site: Site, seen: int = 0) -> bool:
        return seen < FOLLOWED and site in self._lines

    def begin(self, site: Site) -> None:
        if self._again.get(site, 0) < AGAIN:
            self._lines.add(site)

    def came_again(self, site: Site) -> None:
        self._again[site] = self._again.get(site, 0) + 1
        if self._again[site] >= AGAIN:
            self._lines.discard(site)

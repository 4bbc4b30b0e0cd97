"""Which way to go at a branch that the source alone does not decide.

A function is followed along several paths, each from start to end: nothing is merged, so what a branch
did to an object is seen by exactly the code that runs after it. Equal conditions get equal answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A comparison of two computed things, such as `loss < best_loss`: its answer may differ from round to round.
_BY_DATA = re.compile(r"^[^<>]*[\w)\]] [<>]=? [A-Za-z_][^<>]*$")


class Oracle:
    """Answers for one path: a default, and conditions for which the answer is the other one."""

    def __init__(self, default: bool, flipped: str | None = None, *, once: bool = False) -> None:
        self.default = default
        self.flipped = flipped
        # Every condition holds the first time only, as "the best so far" may.
        self.once = once
        self.asked: dict[str, None] = {}

    def decide(self, condition: str) -> bool:
        # `not c` must be the opposite of `c`.
        negated = False
        while condition.startswith("not "):
            condition, negated = condition[4:], not negated
        if condition.endswith(" is not None"):
            condition, negated = condition.removesuffix(" is not None") + " is None", not negated
        again = condition in self.asked
        self.asked.setdefault(condition)
        if self.once and again and _BY_DATA.search(condition):
            return negated
        answer = self.default != (condition == self.flipped)
        return answer != negated


def paths(most: int) -> Iterator[Oracle]:
    """All true, all false, then one answer turned at a time, as long as there are new conditions."""
    first, second = Oracle(True), Oracle(False)
    yield first
    if not first.asked:
        return
    yield second
    if any(_BY_DATA.search(condition) for condition in first.asked):
        yield Oracle(True, once=True)
    left = most - 2
    tried: set[tuple[bool, str]] = set()
    for base in (second, first):
        for condition in list(base.asked):
            if left <= 0:
                return
            if (base.default, condition) not in tried:
                tried.add((base.default, condition))
                left -= 1
                yield Oracle(base.default, condition)

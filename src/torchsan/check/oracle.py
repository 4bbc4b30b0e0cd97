"""Which way to go at a branch that the source alone does not decide.

A function is followed along several paths, each from start to end: nothing is merged, so what a branch
did to an object is seen by exactly the code that runs after it. Equal conditions get equal answers.
"""

from __future__ import annotations

from collections.abc import Iterator


class Oracle:
    """Answers for one path: a default, and conditions for which the answer is the other one."""

    def __init__(self, default: bool, flipped: str | None = None) -> None:
        self.default = default
        self.flipped = flipped
        self.asked: dict[str, None] = {}

    def decide(self, condition: str) -> bool:
        # `not c` must be the opposite of `c`.
        negated = False
        while condition.startswith("not "):
            condition, negated = condition[4:], not negated
        if condition.endswith(" is not None"):
            condition, negated = condition.removesuffix(" is not None") + " is None", not negated
        self.asked.setdefault(condition)
        answer = self.default != (condition == self.flipped)
        return answer != negated


def paths(most: int) -> Iterator[Oracle]:
    """All true, all false, then one answer turned at a time, as long as there are new conditions."""
    first, second = Oracle(True), Oracle(False)
    yield first
    if not first.asked:
        return
    yield second
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

"""Which way to go at a branch that the source alone does not decide.

A function is followed along several paths, each from start to end: nothing is merged, so what a branch
did to an object is seen by exactly the code that runs after it. Equal conditions get equal answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A comparison of two computed things, such as `loss < best_loss`: its answer may differ from round to round.
_BY_DATA = re.compile(r"^[^<>]*[\w)\]] [<>]=? [A-Za-z_][^<>]*$")


def compares(condition: str) -> bool:
    """Whether a condition compares two computed things."""
    return _BY_DATA.search(condition) is not None


def bare(condition: str) -> str:
    """The condition without what turns its answer around."""
    while condition.startswith("not "):
        condition = condition[4:]
    return condition.removesuffix(" is not None") + " is None" if condition.endswith(" is not None") else condition


def bare_turns(condition: str) -> bool:
    """Whether the bare condition has the opposite answer."""
    turned = False
    while condition.startswith("not "):
        condition, turned = condition[4:], not turned
    return turned != condition.endswith(" is not None")


class Oracle:
    """Answers for one path: a default, and conditions for which the answer is the other one."""

    def __init__(self, default: bool, flipped: frozenset[str] = frozenset(), *, once: bool = False) -> None:
        self.default = default
        self.flipped = flipped
        # Every condition holds the first time only, as "the best so far" may.
        self.once = once
        self.asked: dict[str, None] = {}
        # Conditions on which a write hangs.
        self.interesting: dict[str, None] = {}

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
        answer = self.default != (condition in self.flipped)
        return answer != negated


def paths(most: int) -> Iterator[Oracle]:
    """All true, all false, what holds writes true and the rest false, then one answer turned at a time.

    Conditions on which a write hangs come first.
    """
    first, second = Oracle(True), Oracle(False)
    yield first
    if not first.asked:
        return
    yield second
    if any(_BY_DATA.search(condition) for condition in first.asked):
        yield Oracle(True, once=True)
    left = most - 2
    tried: set[tuple[bool, frozenset[str]]] = {(False, frozenset()), (True, frozenset())}
    writing = {**first.interesting, **second.interesting}
    if any(_BY_DATA.search(condition) for condition in writing if condition not in first.asked):
        # The comparison stands behind a branch that the first path has left by.
        yield Oracle(False, frozenset(writing), once=True)
    wanted = [(False, frozenset(writing))]
    for interesting in (True, False):
        for base in (second, first):
            wanted += [(base.default, frozenset({c})) for c in base.asked if (c in writing) == interesting]
    for default, flipped in wanted:
        if left <= 0:
            return
        if (default, flipped) not in tried:
            tried.add((default, flipped))
            left -= 1
            yield Oracle(default, flipped)

"""Sizes that an export refuses by its own account: torch's record of the relations that it holds sizes to, solved for
sizes that break them. Those that eager accepts are the ones to compare, however odd they look from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchsan import compat_capture
from torchsan.verify.guards import axis_of
from torchsan.verify.methods import Captured
from torchsan.verify.sizes import Axis, Dimension, size_of
from torchsan.verify.subject import Subject
from torchsan.verify.variants import Variant

# Sizes offered for one relation, and relations looked at.
MOST_SIZES, MOST_GUARDS = 4, 200
NEAR = 16


def breaking_sizes(subject: Subject, captured: Captured, dimensions: list[Dimension]) -> Iterator[list[Variant]]:
    """For every relation of sizes and every dimension that it speaks of, other sizes that break it: the nearest to
    the example first, which are the likeliest to be meant, and the smallest."""
    environment = compat_capture.shape_environment(captured.artifact) if captured.dynamic is not None else None
    if environment is None:
        return
    places = {symbol: axis_of(subject, *where) for symbol, where in compat_capture.size_symbols(environment).items()}
    seen: set[Any] = set()
    for guard in compat_capture.shape_guards(environment)[:MOST_GUARDS]:
        axes = {symbol: places.get(symbol) for symbol in getattr(guard.expression, "free_symbols", ())}
        if guard.expression in seen or not axes or None in axes.values():
            continue
        seen.add(guard.expression)
        for dimension in dimensions:
            if set(dimension.axes) & set(axes.values()):
                yield _broken_by(subject, guard.expression, axes, dimension)


def _broken_by(subject: Subject, relation: Any, axes: dict[Any, Axis | None], dimension: Dimension) -> list[Variant]:
    breaking = [
        new
        for new in _candidates(dimension.size)
        if (sizes := dimension.sizes(subject, new)) is not None
        and _is_broken(relation, {s: sizes.get(a, size_of(subject, a)) for s, a in axes.items() if a})
    ]
    offered = dict.fromkeys([*breaking[: MOST_SIZES - 1], *sorted(breaking)[:1]])
    return [variant for new in offered if (variant := dimension.variant(subject, new)) is not None]


def _is_broken(relation: Any, sizes: dict[Any, int]) -> bool:
    """Of sizes at which a part of the relation has no value, nothing is known: torch's own functions assert that what
    they divide by is not zero or negative, as the number of windows in a signal too short for one would be."""
    with contextlib.suppress(TypeError, ValueError, ArithmeticError, AssertionError):
        return not bool(relation.xreplace(sizes))
    return False


def _candidates(size: int) -> list[int]:
    """Of 1 there is no need to ask: it is always tried."""
    near = range(max(2, size - NEAR), size + NEAR + 1)
    found = {*near, *range(2, NEAR + 5), size // 2, size * 2} - {size, 0, 1}
    return sorted(found, key=lambda new: (abs(new - size), new))

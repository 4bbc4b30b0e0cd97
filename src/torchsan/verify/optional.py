"""Optional arguments that the example gives: calls that leave them out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchsan.verify.subject import Subject
from torchsan.verify.variants import Variant

MOST = 6


def optional_arguments(subject: Subject) -> list[str]:
    """Parameters with a default to which the example gives something else."""
    if subject.signature is None:
        return []
    try:
        given = subject.signature.bind(*subject.args, **subject.kwargs).arguments
    except TypeError:
        return []
    parameters = subject.signature.parameters
    return [
        name
        for name, value in given.items()
        if parameters[name].default is not parameters[name].empty
        and parameters[name].kind is not parameters[name].POSITIONAL_ONLY
        and not _same(value, parameters[name].default)
    ]


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    plain = bool | int | float | complex | str
    return isinstance(value, plain) and isinstance(default, plain) and value == default


def argument_variants(subject: Subject) -> Iterator[Variant]:
    """Each optional argument left out alone, then all of them."""
    names = optional_arguments(subject)[:MOST]
    groups = [(name,) for name in names] + [tuple(names)] * (len(names) > 1)
    for group in groups:
        yield Variant("arguments", f"without {', '.join(group)}", seed=subject.seed, left_out=group)

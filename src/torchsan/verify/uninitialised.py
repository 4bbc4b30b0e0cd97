"""Memory that a model reads before anybody wrote to it: what it holds is chance, and no capture can be held to it."""

from __future__ import annotations

from typing import Any

import torch

from torchsan.compat_capture import EagerDispatchMode
from torchsan.model import Place
from torchsan.verify.compare import Tolerance, difference
from torchsan.verify.frames import text_of, user_places
from torchsan.verify.subject import Outcome, Subject, run_calls

EXACT = Tolerance(1e-5, 1e-6)
_NAMES = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
Site = tuple[str, int]


class _Filled(EagerDispatchMode):
    """Gives fresh memory a content: the same everywhere, but for one line of the program."""

    def __init__(self, other: Site | None = None) -> None:
        super().__init__()
        self.other = other
        self.places: dict[Site, Place] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name.partition("::")[2] in _NAMES and isinstance(result, torch.Tensor):
            place = next(iter(user_places(1)), None)
            if place is not None:
                site = (place.path, place.line)
                self.places.setdefault(site, place)
                result.fill_(1 if site == self.other else 0)
        return result


def _run(subject: Subject, mode: _Filled) -> Outcome:
    model = subject.fresh()

    def call(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return model(*args, **kwargs)

    return run_calls(call, subject, subject.plan())


def reads_uninitialised(subject: Subject) -> tuple[Place, str] | None:
    """The line whose fresh memory shows in the result: with another content there, the result is another."""
    plain = _Filled()
    first = _run(subject, plain)
    if first.error is not None:
        return None
    for site, place in plain.places.items():
        if difference(first, _run(subject, _Filled(site)), EXACT, names=subject.names) is not None:
            return place, text_of(place)
    return None

"""By which layers and lines a model's train and eval mode differ."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchsan.model import Place
from torchsan.model.capture_events import ModeUse
from torchsan.verify.compare import Tolerance, difference
from torchsan.verify.frames import text_of, user_places
from torchsan.verify.subject import Outcome, Subject

EXACT = Tolerance(1e-5, 1e-6)
MOST_PLACES = 12
Readers = dict[Place | None, list[str]]


@contextlib.contextmanager
def _reading(model: torch.nn.Module, readers: Readers) -> Iterator[None]:
    """Note who asks for `training`: the user's line, and the module."""
    paths = {id(module): path for path, module in model.named_modules()}
    original = torch.nn.Module.__getattribute__

    def get(self: Any, attribute: str) -> Any:
        if attribute == "training" and id(self) in paths:
            place = next(iter(user_places(1)), None)
            path = paths[id(self)]
            if path not in readers.setdefault(place, []):
                readers[place].append(path)
        return original(self, attribute)

    torch.nn.Module.__getattribute__ = get
    try:
        yield
    finally:
        del torch.nn.Module.__getattribute__


def _readers(subject: Subject) -> Readers:
    readers: Readers = {}
    with contextlib.ExitStack() as stack:
        subject.run(subject.plan(), lambda model: stack.enter_context(_reading(model, readers)))
    return readers


def _switched(subject: Subject, paths: list[str]) -> Outcome:
    """The example with some modules, and nothing below them, in the other mode."""

    def switch(model: torch.nn.Module) -> None:
        for path in paths:
            module = model.get_submodule(path)
            module.training = not module.training

    return subject.run(subject.plan(), switch)


def mode_use(subject: Subject, example: Outcome) -> ModeUse | None:
    """The lines that matter: with the modules there switched alone, the result is another."""
    guilty: list[tuple[Place, list[str]]] = []
    for place, paths in list(_readers(subject).items())[:MOST_PLACES]:
        if difference(example, _switched(subject, paths), EXACT) is not None:
            shown = place or subject.home
            if shown is not None:
                guilty.append((shown, paths))
    if not guilty:
        return None
    names = dict(subject.model.named_modules())
    place, paths = guilty[0]
    return ModeUse(
        place,
        text_of(place),
        tuple(dict.fromkeys(type(names[path]).__name__ for path in paths)),
        subject.model.training,
        tuple(dict.fromkeys(other for other, _ in guilty[1:])),
        subject.capture,
    )

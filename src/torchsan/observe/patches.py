"""Replacing attributes of classes and modules, and putting everything back."""

from __future__ import annotations

from collections.abc import Collection
from types import FunctionType
from typing import Any, NamedTuple

_ABSENT = object()


class Entry(NamedTuple):
    """One attribute that we replaced: what was there, and what we put there."""

    owner: Any
    name: str
    before: Any
    value: Any


class Patches:
    """Attributes that we replaced. `remove` and `apply` can alternate any number of times."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name` now. What an owner only inherits is deleted again, not assigned, afterwards."""
        before = vars(owner).get(name, _ABSENT)
        if isinstance(value, FunctionType):
            # Torch hands the function that it finds here to `__torch_function__`, where people ask for its name.
            value.__name__ = getattr(getattr(owner, name, None), "__name__", name)
            # Warnings that are given below it go on to whoever called; see `sensors.warned`.
            value.__globals__["__warningregistry__"] = None
        self._entries.append(Entry(owner, name, before, value))
        setattr(owner, name, value)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put another value in the place of one that `set` put there."""
        for index, (known_owner, known_name, before, current) in enumerate(self._entries):
            if known_owner is owner and known_name == name:
                self._entries[index] = Entry(owner, name, before, value)
                if vars(owner).get(name, _ABSENT) is current:
                    setattr(owner, name, value)
                return

    def current(self, owner: Any, name: str) -> Any:
        """What stands at `owner.name` while the patches are in, also when they are out just now."""
        ours = [entry.value for entry in self._entries if entry.owner is owner and entry.name == name]
        return ours[-1] if ours else getattr(owner, name)

    def named(self, names: Collection[str]) -> list[Entry]:
        """The replacements of attributes with these names."""
        return [entry for entry in self._entries if entry.name in names]

    def remove(self) -> None:
        self.take_out(self._entries)

    def take_out(self, entries: list[Entry]) -> None:
        for owner, name, before, value in reversed(entries):
            # Somebody may have patched on top of us: theirs stays.
            if vars(owner).get(name, _ABSENT) is not value:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def apply(self) -> None:
        self.put_in(self._entries)

    def put_in(self, entries: list[Entry]) -> None:
        for owner, name, _before, value in entries:
            setattr(owner, name, value)

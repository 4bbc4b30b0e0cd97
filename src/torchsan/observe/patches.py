"""Replacing attributes of classes and modules, and putting everything back."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """Attributes that we replaced. `remove` and `apply` can alternate any number of times."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name` now. What an owner only inherits is deleted again, not assigned, afterwards."""
        before = vars(owner).get(name, _ABSENT)
        self._entries.append((owner, name, before, value))
        setattr(owner, name, value)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put another value in the place of one that `set` put there."""
        for index, (known_owner, known_name, before, current) in enumerate(self._entries):
            if known_owner is owner and known_name == name:
                self._entries[index] = (owner, name, before, value)
                if vars(owner).get(name, _ABSENT) is current:
                    setattr(owner, name, value)
                return

    def remove(self) -> None:
        for owner, name, before, value in reversed(self._entries):
            # Somebody may have patched on top of us: theirs stays.
            if vars(owner).get(name, _ABSENT) is not value:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def apply(self) -> None:
        for owner, name, _before, value in self._entries:
            setattr(owner, name, value)

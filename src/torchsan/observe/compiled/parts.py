"""The tensors of one call of a region that lie in memory from outside, made for those who look at them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchsan import compat
from torchsan.observe.compiled.scopes import NOTHING, Part, Scopes
from torchsan.observe.tensors import is_plain


class Parts:
    def __init__(self, whole: Callable[[int], torch.Tensor | None]) -> None:
        self._whole = whole
        self._made: dict[str, torch.Tensor] = {}

    def value(self, known: Any) -> Any:
        """What stands for a variable of a scope; NOTHING where that is not known in this call."""
        if isinstance(known, weakref.ref):
            module = known()
            return NOTHING if module is None else module
        found = self.cut(known) if isinstance(known, Part) else None
        return NOTHING if found is None else found

    def scopes(self, known: Scopes) -> Scopes:
        return tuple(scope.told(self.value) for scope in known)

    def cut(self, part: Part) -> torch.Tensor | None:
        """The tensor: one for all that came from one node. At another size it is not known which part it is."""
        whole = self._whole(part.target)
        if whole is None or part.view is None:
            return whole
        if part.node in self._made:
            return self._made[part.node]
        if not is_plain(whole) or tuple(whole.shape) != part.shape:
            return None
        with compat.unseen(), torch.no_grad():
            made = torch.as_strided(whole.detach(), *part.view)
        if part.node:
            self._made[part.node] = made
        return made

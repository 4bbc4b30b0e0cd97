"""Whether anything that a function touches surely asks for a gradient, told from the text of the file."""

from __future__ import annotations

import re
from functools import cached_property

from torchsan.check.reading.outline import Definition

_SURE = re.compile(r"Parameter\(|requires_grad|inference_mode|\.backward\(|nn\.[A-Z]\w+\(|=torch\.\w+\(")
_PART = re.compile(r"self\.(\w+) ?= ?([\w.]+)\(")
_OWN = re.compile(r"self\.(\w+)")
_CALLED = re.compile(r"(\w+)\(")
# `class Scaled(nn.Linear)`: the parameters of the layer are its own.
_LAYER_BASE = re.compile(r"class \w+\([^)\n]*nn\.(?!Module|functional)[A-Z]")
DEEPEST = 3


class GradientSources:
    """Layers and parameters of a file, and the functions that come across them."""

    def __init__(self, text: str, outline: list[Definition]) -> None:
        self.text = text
        self.outline = outline
        self._known: dict[Definition, bool] = {}

    @cached_property
    def by_name(self) -> dict[str, list[Definition]]:
        found: dict[str, list[Definition]] = {}
        for definition in self.outline:
            found.setdefault(definition.name, []).append(definition)
        return found

    @cached_property
    def parts(self) -> frozenset[str]:
        """Attributes that hold a layer, a parameter or what a function of the file made."""
        return frozenset(
            name
            for name, maker in _PART.findall(self.text)
            if "nn." in maker or "Parameter" in maker or maker[:1].isupper() or maker.rpartition(".")[2] in self.by_name
        )

    def reach(self, definition: Definition, depth: int = 0) -> bool:
        known = self._known.get(definition)
        if known is None:
            self._known[definition] = False
            known = self._known[definition] = self._reach(definition, depth)
        return known

    def _reach(self, definition: Definition, depth: int) -> bool:
        text, start, end = self.text, definition.start, definition.end
        if _SURE.search(text, start, end):
            return True
        if definition.kind == "class":
            return False
        if definition.owner is not None:
            if definition.name == "backward":
                # What it is given back was saved for a gradient.
                return True
            if not self.parts.isdisjoint(_OWN.findall(text, start, end)):
                return True
            if _LAYER_BASE.match(text, definition.owner.start):
                return True
        if depth >= DEEPEST:
            return False
        called = set(_CALLED.findall(text, start + 4 + definition.indent, end)) - {definition.name}
        return any(self.reach(other, depth + 1) for name in called for other in self.by_name.get(name, ()))

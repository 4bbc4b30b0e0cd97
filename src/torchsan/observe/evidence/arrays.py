"""Where the program writes an array whose memory others hold as a tensor: found by the attribute that keeps it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from torchsan.model import Place
from torchsan.observe import expressions as syntax
from torchsan.observe.foreign_writes import lines_that_write_by
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.slots import Census, Holding
from torchsan.observe.holders.storing import homes_of
from torchsan.observe.objects import is_tensor


def written_as_arrays(value: Any, census: Census) -> list[Place]:
    """Statements that write an attribute under which an object keeps this memory, or a part of it, as an array.

    First those of functions that are called in a loop.
    """
    found = dict.fromkeys(_statements(value, census))
    return sorted(found, key=lambda place: not _called_in_a_loop(place))


def _statements(value: Any, census: Census) -> Iterator[Place]:
    extent = extent_of(value)
    for holding in census.of(extent) if extent is not None else ():
        name = "" if is_tensor(holding.value) else _attribute(holding)
        for file, scope, near in homes_of(holding.step) if name else ():
            yield from lines_that_write_by(file, scope, f"self.{name}", near)


def _attribute(holding: Holding) -> str:
    """`_frames` for `self.camera._frames['left']`."""
    named = next((step for step in holding.step.up() if step.kind != "item"), None)
    return named.part.lstrip(".") if named is not None and named.kind == "attribute" else ""


def _called_in_a_loop(place: Place) -> bool:
    file = syntax.file_of(place.path)
    node = file.at(place) if file is not None else None
    if file is None or node is None:
        return False
    called = getattr(file.function(node), "name", "")
    calls = (n for n in file.within(file.tree) if isinstance(n, ast.Call))
    named = (call for call in calls if syntax.text_of(call.func).rpartition(".")[2] == called)
    return any(isinstance(around, (ast.For, ast.While)) for call in named for around in file.up(call))

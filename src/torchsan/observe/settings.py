"""The settings of an optimizer, and the line of the program's own that changes one of them without a scheduler."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from torchsan.model import Place
from torchsan.observe import expressions as syntax

GROUPS = "param_groups"

Settings = list[dict[str, Any]]


def settings_of(optimizer: Any) -> Settings:
    """The numbers of each group of parameters."""
    return [
        {k: v for k, v in group.items() if k != "params" and isinstance(v, (int, float, tuple))}
        for group in optimizer.param_groups
    ]


def in_words(settings: Settings) -> list[str]:
    return [", ".join(f"{key}={value}" for key, value in sorted(group.items())) for group in settings]


def changed(before: Settings, after: Settings) -> set[str]:
    """The names of settings that are others now."""
    found: set[str] = set()
    for old, new in zip(before, after, strict=False):
        found.update(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return found


def set_by_hand(paths: Iterable[str], names: set[str]) -> Place | None:
    """The one statement in these files that assigns to such a setting, as `group["lr"] *= 0.5` does.

    A dictionary tells nobody that it is written. None where there are several: which of them it was is not known.
    """
    found = []
    for path in dict.fromkeys(paths):
        file = syntax.file_of(path)
        if file is None:
            continue
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                key = node.slice
                statement = file.statement(node)
                if not isinstance(key, ast.Constant) or key.value not in names or statement is None:
                    continue
                if _is_group(file, node.value):
                    found.append(file.place(statement, Place(path, node.lineno)))
    return found[0] if len(found) == 1 else None


def _is_group(file: syntax.File, node: ast.expr) -> bool:
    """`optimizer.param_groups[0]`, or a name for an entry of it; not a log that has an entry of the same name."""
    value: ast.expr = node
    if isinstance(node, ast.Name):
        found = syntax.binding(file, file.function(node), node.id, node.lineno)
        value = found[1] if found is not None else node
    return any(isinstance(part, ast.Attribute) and part.attr == GROUPS for part in ast.walk(value))

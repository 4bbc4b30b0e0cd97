"""Each room of the static engine imports only the rooms that its `__init__` names."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from torchsan import check
from torchsan.check.cache import ROOMS

FOLDER = Path(check.__file__).parent


def imported(file: Path) -> set[str]:
    """Rooms of `torchsan.check` that a file imports when it runs; `TYPE_CHECKING` blocks do not run."""
    found: set[str] = set()
    pending: list[ast.AST] = list(ast.parse(file.read_text(encoding="utf-8")).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        pending.extend(ast.iter_child_nodes(node))
    names = [name.split(".") for name in found if name.startswith("torchsan.check.")]
    return {parts[2] for parts in names}


def test_every_folder_is_a_room() -> None:
    assert {f.name for f in FOLDER.iterdir() if f.is_dir() and f.name != "__pycache__"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_imports(room: str) -> None:
    allowed = {room, "facts", *importlib.import_module(f"torchsan.check.{room}").ROOMS}
    for file in sorted((FOLDER / room).glob("*.py")):
        assert imported(file) <= allowed, file.name

"""Private torch APIs about captures, and what happens where they are missing.

- `ShapeEnv.guards`, `.source_to_var` and the places in them, through the values of an exported graph: which line of the
  program fixed a size. Without them a refused size is told without torch's own word for the line.
- `ShapeEnv._get_sloc`, called for every such relation: the user's line where torch's own code asked. Without it such
  relations are told without a line.
- `TorchDispatchMode._should_skip_dynamo`: a mode that does not load the compiler. Where it is missing it is loaded.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_SOURCE = re.compile(r"^L\['(\w+)'\](.*)\.size\(\)\[(\d+)\]$")


class EagerDispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """A mode around eager code: torch keeps its compiler away from modes, and would load it (1 s) only for that."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return "torch._dynamo" in sys.modules


@dataclass(frozen=True)
class ShapeGuard:
    """A relation between sizes that an export relies on, and the line that asked for it.

    `key` is what `asking` has noted it under.
    """

    expression: Any
    key: int
    path: str
    line: int
    column: int
    end_column: int
    function: str


@contextlib.contextmanager
def asking(note: Callable[[int], None]) -> Iterator[None]:
    """Calls `note` whenever torch decides something by a size, with the key of the relation that comes of it."""
    from torch.fx.experimental import symbolic_shapes

    owner: Any = symbolic_shapes.ShapeEnv
    original = getattr(owner, "_get_sloc", None)
    if original is None:
        yield
        return
    kept: list[Any] = []

    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        sloc = original(self, *args, **kwargs)
        # Kept, so that its key stays its own as long as it is asked for.
        kept.append(sloc)
        note(id(sloc))
        return sloc

    owner._get_sloc = get
    try:
        yield
    finally:
        owner._get_sloc = original


def shape_environment(program: Any) -> Any:
    """The sizes of an exported program as torch knows them; None where it does not tell."""
    program = getattr(program, "exported_program", program)
    for node in getattr(getattr(program, "graph", None), "nodes", ()):
        mode: Any = getattr(node.meta.get("val"), "fake_mode", None)
        if getattr(mode, "shape_env", None) is not None:
            return mode.shape_env
    return None


def shape_guards(environment: Any) -> list[ShapeGuard]:
    found = []
    for guard in getattr(environment, "guards", ()):
        sloc = getattr(guard, "sloc", None)
        frame: Any = getattr(sloc, "maybe_user_loc", None) or getattr(sloc, "framework_loc", None)
        if not hasattr(frame, "filename") or not getattr(frame, "lineno", None):
            continue
        column, end = getattr(frame, "colno", None) or 0, getattr(frame, "end_colno", None) or 0
        found.append(ShapeGuard(guard.expr, id(sloc), frame.filename, frame.lineno, column + 1, end + 1, frame.name))
    return found


def size_symbols(environment: Any) -> dict[Any, tuple[str, str, int]]:
    """For every symbol the argument, the way into it and the dimension whose size it stands for."""
    found: dict[Any, tuple[str, str, int]] = {}
    for source, symbol in getattr(environment, "source_to_var", {}).items():
        match = _SOURCE.match(str(source))
        if match:
            found.setdefault(symbol, (match[1], match[2], int(match[3])))
    return found

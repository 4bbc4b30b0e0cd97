"""Collectives that give their result back instead of writing it: a program that throws it away goes on as before."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchsan import compat_distributed as distributed
from torchsan.model.events import Line
from torchsan.model.parallel_events import ResultDropped
from torchsan.observe import expressions as syntax
from torchsan.observe.imports import when_imported
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import OURS, TORCH, USER, Site, frame_place, kind_of

# The modules whose functions leave their argument alone. `reduce_scatter`, `all_to_all` and `_all_gather_base` of the
# first one are given where to write.
FUNCTIONAL = (os.path.join("distributed", "nn", "functional.py"), "_functional_collectives.py")
INTO = ("reduce_scatter", "all_to_all", "all_to_all_single", "_all_gather_base")
LOOKS = 3
VISITS = 64


class FunctionalResults:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._looks: dict[Any, int] = {}
        self._visits: dict[Site, int] = {}

    def install(self) -> None:
        when_imported(distributed.FUNCTIONAL, self._imported)

    @shield
    def _imported(self) -> None:
        awaited = distributed.awaited_tensor_class()
        if awaited is not None and self.recorder.active:
            self.recorder.patches.set(awaited, "__new__", staticmethod(self._awaiting(awaited.__new__)))

    def _awaiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __new__(cls: Any, elem: Any, *args: Any, **kwargs: Any) -> Any:
            if self.recorder.active and not self.recorder.paused and elem.numel() > 1:
                self.called(sys._getframe(1))
            return original(cls, elem, *args, **kwargs)

        return __new__

    @shield
    def called(self, frame: FrameType | None, site: Site | None = None) -> None:
        """A collective begins below this frame: is it that of a function whose result the program drops?

        FSDP alone makes dozens in a step, each deep in frames of torch's: a line is asked so often and no more.
        """
        if site is not None:
            visits = self._visits[site] = self._visits.get(site, 0) + 1
            if visits > VISITS:
                return
        function: FrameType | None = None
        while frame is not None and kind_of(frame.f_code) in (TORCH, OURS):
            if kind_of(frame.f_code) == TORCH:
                function = frame
            frame = frame.f_back
        if frame is None or function is None or kind_of(frame.f_code) != USER:
            return
        name = function.f_code.co_name
        key = (frame.f_code, frame.f_lasti)
        looks = self._looks.get(key, 0)
        if looks >= LOOKS or not _gives_back(function.f_code.co_filename, name):
            return
        self._looks[key] = looks + 1
        place = frame_place(frame)
        file = syntax.file_of(place.path)
        call = file.at(place) if file else None
        if file is None or not isinstance(call, ast.Call) or not call.args or not _thrown_away(file, call):
            return
        owner = syntax.text_of(call.args[0])
        self.recorder.emit(ResultDropped(name, Line(place), syntax.text_of(call), owner, "returned"))


def _gives_back(path: str, name: str) -> bool:
    if path.endswith(FUNCTIONAL[0]):
        return name not in INTO
    return path.endswith(FUNCTIONAL[1]) and not name.endswith("_inplace")


def _thrown_away(file: syntax.File, call: ast.Call) -> bool:
    """The call stands alone, or its result has a name that the function never reads."""
    statement = file.statement(call)
    if isinstance(statement, ast.Expr):
        return statement.value is call
    if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
        return False
    target, function = statement.targets[0], file.function(call)
    if not isinstance(target, ast.Name) or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    for node in ast.walk(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and target.id in node.names:
            return False
        if isinstance(node, ast.Name) and node.id == target.id and not isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Name) and node.id in ("locals", "eval", "exec"):
            return False
    return not target.id.startswith("_")

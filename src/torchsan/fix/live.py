"""Candidates for a live function: its code is swapped for the edited one, run on copies of its arguments, put back."""

from __future__ import annotations

import copy
import gc
import linecache
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch

from torchsan.errors import UsageError
from torchsan.fix import overlay
from torchsan.fix.recording import Recording
from torchsan.fix.source import Source, real
from torchsan.fix.trial import Mode, Trial

Key = tuple[str, int]


class Live:
    """Runs `function(*args, **kwargs)`; a result that nobody called backward on gets one."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> None:
        self.call = (function, args, kwargs)
        self.limit = limit
        self.runs = 0
        self._functions: dict[str, list[FunctionType]] = {}
        self._copy()  # says at once when that cannot be done

    def close(self) -> None:
        """Nothing is left running."""

    def _copy(self) -> Any:
        try:
            return copy.deepcopy(self.call)
        except Exception as error:
            raise UsageError(f"the function or its arguments cannot be copied for a trial: {error}") from None

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        self.runs += 1
        function, args, kwargs = self._copy()
        recording = Recording(mode, self.limit)

        def body() -> Any:
            result = function(*args, **kwargs)
            if not recording.passes and isinstance(result, torch.Tensor) and result.requires_grad:
                result.sum().backward()
            return result

        for path in changed:
            # Functions made later get their code from these.
            if path not in self._functions:
                self._functions[path] = _functions(path)
        with _same_draws(), _swapped(changed, self._functions) as trouble:
            if trouble:
                return Trial(error=trouble)
            recording.start()
            return recording.run(body)


@contextmanager
def _same_draws() -> Iterator[None]:
    """Every run draws the same random numbers, and the caller's stream is where it was afterwards."""
    numpy = sys.modules.get("numpy")
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        if numpy is not None:
            numpy.random.set_state(states[2])


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _by_key(code: CodeType) -> dict[Key, CodeType]:
    """Functions of a file by name; those with one name, by their order."""
    found: dict[Key, CodeType] = {}
    for inner in sorted(_codes(code), key=lambda c: c.co_firstlineno):
        number = sum(name == inner.co_qualname for name, _ in found)
        found[inner.co_qualname, number] = inner
    return found


@contextmanager
def _swapped(changed: dict[str, Source], functions: dict[str, list[FunctionType]]) -> Iterator[str]:
    """Give every live function of the changed files its new code. Yields why not, if it cannot be done."""
    before: list[tuple[FunctionType, CodeType]] = []
    lines = {path: linecache.cache.get(path) for path in changed}
    trouble = ""
    try:
        for path, source in changed.items():
            trouble = trouble or _swap(path, source, functions[path], before)
            overlay.show(path, source.raw)
        yield trouble
    finally:
        for function, code in before:
            function.__code__ = code
        for path, entry in lines.items():
            linecache.cache.pop(path, None)
            if entry is not None:
                linecache.cache[path] = entry


def _swap(path: str, source: Source, functions: list[FunctionType], done: list[tuple[FunctionType, CodeType]]) -> str:
    with open(path, "rb") as file:
        old = _by_key(compile(file.read(), path, "exec", dont_inherit=True))
    numbers = {(name, code.co_firstlineno): (name, number) for (name, number), code in old.items()}
    new: dict[str, dict[Key, CodeType]] = {}
    for function in functions:
        code = function.__code__
        if code.co_filename not in new:
            new[code.co_filename] = _by_key(compile(source.raw, code.co_filename, "exec", dont_inherit=True))
        key = numbers.get((code.co_qualname, code.co_firstlineno))
        if key is None:
            continue
        replacement = new[code.co_filename].get(key)
        if replacement is None or replacement.co_freevars != code.co_freevars:
            return f"{code.co_qualname} cannot be exchanged while it is in use"
        function.__code__ = replacement
        done.append((function, code))
    return ""


def _functions(path: str) -> list[FunctionType]:
    # By exact type: to ask some objects for their class makes them warn.
    found = [f for f in gc.get_objects() if type(f) is FunctionType]
    names = {f.__code__.co_filename for f in found}
    same = {name: os.path.basename(name) == os.path.basename(path) and real(name) == path for name in names}
    return [f for f in found if same[f.__code__.co_filename]]

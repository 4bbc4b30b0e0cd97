"""Every mutable overload that can be called on CPU: the write is seen, with its line, whichever way it is called."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from tests.observe.generated_calls import TRIES, arguments, mutable_ops, stderr_closed

import torchsan
from torchsan.observe.api import current
from torchsan.observe.sensors.writes import WriteSensor
from torchsan.observe.tensors import memory_of


def by_op(op: Any, placed: list[Any], named: dict[str, Any]) -> None:
    op(*placed, **named)


def by_packet(op: Any, placed: list[Any], named: dict[str, Any]) -> None:
    op.overloadpacket(*placed, **named)


def by_method(op: Any, placed: list[Any], named: dict[str, Any]) -> None:
    getattr(torch.Tensor, op._schema.name.partition("::")[2])(*placed, **named)


def by_function(op: Any, placed: list[Any], named: dict[str, Any]) -> None:
    getattr(torch, op._schema.name.partition("::")[2])(*placed, **named)


WAYS: dict[str, Callable[[Any, list[Any], dict[str, Any]], None]] = {
    "torch.ops": by_op,
    "packet": by_packet,
    "method": by_method,
    "function": by_function,
}


def seen(way: Callable[..., None], op: Any) -> bool | None:
    """Is the write of this op known at the line of its call? None where it cannot be called this way."""
    for kinds in TRIES:
        try:
            placed, named, written = arguments(op, kinds)
        except KeyError:
            return None
        memories = [memory_of(tensor) for tensor in written]
        try:
            way(op, placed, named)
        except Exception:
            continue
        recorder = current()
        line = way.__code__.co_firstlineno + 1
        return all(
            any(
                w.site.code is way.__code__ and w.site.place.line == line
                for w in recorder.ledger.writes.get(memory, ())
            )
            for memory in memories
        )
    return None


def has(way: str, op: Any) -> bool:
    name = op._schema.name.partition("::")[2]
    in_place = name.endswith("_")
    if way == "method":
        return in_place and hasattr(torch.Tensor, name)
    if way == "function":
        return hasattr(torch, name) and (in_place or "out" in op._overloadname)
    return True


def test_every_write_is_seen_with_its_line(sensor, capsys):
    ops = mutable_ops()
    missed: dict[str, list[str]] = {}
    with torchsan.watch() as report, stderr_closed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if sensor == "python":
            # Which functions a program calls with `out=` is read off its code; here their names are made up as we go.
            source = next(one for one in current()._sensors if isinstance(one, WriteSensor)).source  # type: ignore[union-attr]
            for op in ops:
                name = op._schema.name.partition("::")[2]
                if has("function", op) and not name.endswith("_"):
                    source._watch_out(torch, name)
        for way, call in WAYS.items():
            results = {str(op): seen(call, op) for op in ops if has(way, op)}
            called = {name: found for name, found in results.items() if found is not None}
            missed[way] = [name for name, found in called.items() if not found]
            share = 1 - len(missed[way]) / len(called)
            with capsys.disabled():
                print(f"\n{sensor}, by {way}: {len(called)} called, {share:.2%} seen", file=sys.stderr)
            assert len(called) > 100
            assert share >= 0.98, missed[way]
    assert report.notes == []

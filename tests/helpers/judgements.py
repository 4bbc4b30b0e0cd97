"""Which judgements tell of a program: the functions that have made the events of which an alarm was raised."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, get_args
from unittest import mock

from torchsan.model import events
from torchsan.observe.recorder import Recorder

_KINDS = get_args(events.Event)


@contextlib.contextmanager
def judgements() -> Iterator[set[str]]:
    """While the block runs, the names of those that have told something for sure: `second_names.second_name`."""
    made: dict[int, tuple[object, str]] = {}
    told: set[str] = set()
    emit = Recorder.emit

    def emitting(recorder: Recorder, event: Any) -> list[Any]:
        found = emit(recorder, event)
        if any(finding.certainty != "possible" and finding.level != "note" for finding in found):
            told.add(made[id(event)][1])
        return found

    with contextlib.ExitStack() as stack:
        for kind in _KINDS:
            stack.enter_context(mock.patch.object(kind, "__init__", _noting(kind.__init__, made)))
        stack.enter_context(mock.patch.object(Recorder, "emit", emitting))
        yield told


def _noting(original: Any, made: dict[int, tuple[object, str]]) -> Any:
    def __init__(event: Any, *args: Any, **kwargs: Any) -> None:
        original(event, *args, **kwargs)
        frame = sys._getframe(1)
        # `dataclasses.replace` makes another one for somebody of ours.
        while frame.f_back is not None and not frame.f_globals["__name__"].startswith("torchsan."):
            frame = frame.f_back
        where = frame.f_globals["__name__"].rpartition(".")[2]
        made[id(event)] = (event, f"{where}.{frame.f_code.co_name}")  # kept, so that its address stays its own

    return __init__


def needed_by_one(found: dict[str, list[set[str]]], kind: str) -> set[str]:
    """The judgements that tell of this kind and of no other. Without the kind nobody would have written them."""
    others = {name for other, programs in found.items() if other != kind for told in programs for name in told}
    return {name for told in found[kind] for name in told} - others

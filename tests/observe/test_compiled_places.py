"""What is told of a compiled program is what is told of the same program in eager, wherever in it the write stands.

`TORCHSAN_CELLS=all` runs every place in every program with both backends; else a few of them are.
"""

from __future__ import annotations

import functools
import os
import shutil

import pytest
import torch
from compiled_places import EXCEPTIONS, PLACES, PROGRAMS, SETUP

from torchsan.observe import api
from torchsan.observe.recorder import Recorder

pytestmark = pytest.mark.filterwarnings("ignore")
ALL = os.environ.get("TORCHSAN_CELLS") == "all"
SAMPLE = (
    *(("saved_outside", place) for place in ("custom_function", "checkpointed", "nested_after_break", "data")),
    *(("saved_inside", place) for place in ("custom_function_unmarked", "checkpointed", "data")),
    *(("leaf", place) for place in ("custom_function", "closure")),
    *(("expanded", place) for place in ("method", "checkpointed", "index")),
    *(("view_of_a_leaf", place) for place in ("data", "mapped")),
    *(("two_names", place) for place in ("indexed_loop", "custom_function_unmarked")),
    *(("default_argument", place) for place in ("checkpointed", "compiled_method")),
    *(("clean_copy", place) for place in ("custom_function", "checkpointed")),
    *(("clean_fresh", place) for place in ("data", "custom_function_unmarked")),
)
CELLS = [(program, place) for program in PROGRAMS for place in PLACES] if ALL else SAMPLE
BACKENDS = ["aot_eager", *(["inductor"] if ALL and shutil.which("g++") else [])]


@pytest.fixture(autouse=True)
def fresh_compiler():
    yield
    torch._dynamo.reset()


def _source(program: str, place: str, backend: str) -> str:
    # Code is equal to code on the same lines of another file, and dynamo then takes the one for the other.
    first = 1 + list(PLACES).index(place) * 40 + list(PROGRAMS).index(program)
    return "#" + "\n" * first + SETUP.format(backend=backend) + PLACES[place] + PROGRAMS[program]


def _told(watched) -> set[tuple[str, frozenset[int]]]:
    """Codes and the lines of the program that they blame."""
    found = set()
    for finding in watched.alarms:
        own = [
            span for span in finding.spans if span.path == str(watched.path) or span.path.endswith(watched.path.name)
        ]
        blamed = {span.line for span in own if span.role == "mutated"} or {span.line for span in own if span.primary}
        found.add((finding.code, frozenset(blamed)))
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("program", "place"), CELLS)
def test_compiled_tells_what_eager_does(program, place, backend, watch_program, monkeypatch):
    compiled = watch_program(_source(program, place, backend), "program.py")
    torch._dynamo.reset()
    monkeypatch.setattr(api, "Recorder", functools.partial(Recorder, eager=True))
    eager = watch_program(_source(program, place, backend), "program.py")
    assert eager.report.notes == compiled.report.notes == []
    unlike = EXCEPTIONS.get((program, place))
    if unlike is not None:
        # Compiled code does something else here: what it does is told, at the same line.
        assert {code for code, _ in _told(compiled)} == unlike
        assert all(lines <= compiled.marked("mutates") for _, lines in _told(compiled))
    elif compiled.error is not None:
        # What would have come after the error is not reached, and compiling fails before anything has run.
        assert _told(compiled)
        assert _told(compiled) <= _told(eager)
    else:
        assert _told(compiled) == _told(eager)

"""What regions do to memory of their own: told by the line inside, and only where values change."""

from __future__ import annotations

import pytest
import torch
from compiled_inside import CLEAN, HAZARDS
from compiled_programs import SETUP

from torchsan.observe.compiled.lines import node_site

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_compiler():
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", HAZARDS)
def test_hazard(name, watch_program):
    code, program = HAZARDS[name]
    watched = watch_program(SETUP.format(backend="aot_eager") + program)
    assert set(watched.codes) == {code}
    assert watched.lines("mutated") == watched.marked("mutates")


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, watch_program):
    watched = watch_program(SETUP.format(backend="aot_eager") + CLEAN[name])
    assert watched.error is None
    assert watched.alarms == []


def test_places_end_where_the_call_ends(watch_program, monkeypatch):
    """Dynamo's text of a stack marks everything up to the end of the line."""
    from torchsan.observe.compiled import replay as module

    met = []
    original = module.write_site
    monkeypatch.setattr(module, "write_site", lambda node: met.append(node_site(node)) or original(node))
    watch_program(
        """
        import torch

        @torch.compile(backend="aot_eager")
        def f(x):
            h = x * 2
            return (torch.relu_(h) + h.mul_(3)).sum()

        f(torch.randn(3))
        """
    )
    assert {(site.place.column, site.place.end_column) for site in met} == {(13, 27), (30, 39)}

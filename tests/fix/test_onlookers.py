"""Who else sees what a line writes: edits are proved only where the program is the healed one for all of them.

`onlooking_programs` has about sixty programs; of each kind some are run here, all of them with TORCHSAN_ONLOOKERS=all.
"""

from __future__ import annotations

import contextlib
import io
import os

import pytest
from onlooking_programs import programs

from torchsan.fix.carriers import Carriers
from torchsan.fix.engine import Engine
from torchsan.fix.source import Source
from torchsan.observe.healing import heal

PROGRAMS = programs()
QUICK = {
    "called for its effect, in a lambda",
    "called for its effect, in a comprehension",
    "a layer, of a module",
    "a layer, through **",
    "held by a view in a deque of tuples",
    "held by a generator",
    "held by an attribute of a tensor",
    "a caller five frames up",
    "a copy for a function that keeps it",
    "a copy for a function that gives it back",
}
WANTED = sorted(PROGRAMS) if os.environ.get("TORCHSAN_ONLOOKERS") == "all" else sorted(QUICK)


def printed(text: str, path: str, mode: str, monkeypatch: pytest.MonkeyPatch, *, healed: bool) -> str:
    monkeypatch.setenv("TORCHSAN_TEST_MODE", mode)
    code, out = compile(text, path, "exec"), io.StringIO()
    with contextlib.redirect_stdout(out), heal(codes=[code]) if healed else contextlib.nullcontext():
        exec(code, {"__name__": "__main__"})
    monkeypatch.setenv("TORCHSAN_TEST_MODE", "")
    return out.getvalue()


@pytest.mark.parametrize("name", WANTED)
def test_what_is_verified_is_right_for_whoever_looks_on(name, tmp_path, lab, monkeypatch):
    path = tmp_path / "program.py"
    path.write_text(PROGRAMS[name])
    monkeypatch.setenv("TORCHSAN_TEST_MODE", "")
    outcome = Engine(lab(path, 10)).run()
    assert outcome.mends, "the program has no fault"
    for mended in outcome.changed.values():
        for mode in ("", "1"):
            want = printed(PROGRAMS[name], str(path), mode, monkeypatch, healed=True)
            got = printed(mended.text, str(tmp_path / "mended.py"), mode, monkeypatch, healed=False)
            assert got == want, f"with MODE={mode!r}:\n{outcome.diff}"


@pytest.mark.parametrize(
    "name", ["a layer, on its own", "called for its effect, by its name", "held by a plain object"]
)
def test_the_narrow_edit_is_found_where_the_obvious_one_is_wrong(name, mend, monkeypatch):
    monkeypatch.setenv("TORCHSAN_TEST_MODE", "")
    outcome = mend(PROGRAMS[name])
    assert [mended.proved for mended in outcome.mends] == [True]
    assert ".clone()" in outcome.mends[0].candidate.result().text


def test_an_edit_that_is_not_needed_is_left_out(mend):
    """Two findings of one layer in a list, of which one edit mends both."""
    outcome = mend("""
        import torch
        from torch import nn
        layers = []
        for size in (3, 4):
            layers += [nn.Linear(size, 4), nn.Tanh(), nn.Hardtanh(-0.3, 0.3, inplace=True)]
        net = nn.Sequential(*layers, nn.Linear(4, 1))
        def step(x):
            return net(x).squeeze(-1)
        step(torch.randn(5, 3)).pow(2).sum().backward()
        """)
    titles = [mended.candidate and mended.candidate.title for mended in outcome.mends]
    assert titles == ["inplace=False for this Hardtanh (line 5)"], outcome.mends


def test_what_is_made_goes_by_many_names():
    source = Source(
        "program.py",
        b"act = make()\nclass A:\n    def __init__(self, f):\n        self.f = f\na = A(act)\n"
        b"def given():\n    return [act]\nfor one in given():\n    pass\nother = torch.relu(x)\n",
    )
    made = Carriers([source], made=[source.tree.body[0].value])
    assert {"act", "f", "one"} <= made.names
    assert not {"a", "x", "other"} & made.names

"""Catching the line that stores changes nothing: not the variables of a function, nor how long they live."""

from __future__ import annotations

import contextlib
import sys

import torch
from observe_kept_programs import SETUP

import torchsan
from torchsan.observe.kept import catching

HOLDS = "        history.append(loss)  # holds"

LIVES = (
    SETUP
    + """
import weakref

def batches(count):
    for _ in range(count):
        x, y = batch()
        yield x, y

refs, alive, history = [], [], []

def main():
    inner = 0

    def bump():
        nonlocal inner
        inner += 1

    for x, y in batches(14):
        refs.append(weakref.ref(x.untyped_storage()))
        hidden = model[1](model[0](x))
        loss = (model[2](hidden) - y).pow(2).mean()
        refs.append(weakref.ref(hidden.untyped_storage()))
        update(loss)
        bump()
        history.append(loss)  # holds
        del hidden, loss
        alive.append(sum(ref() is not None for ref in refs))
    return inner

turns = main()
"""
)


def _run(path, *, watched):
    path.write_text(LIVES)
    namespace: dict = {"__name__": "program"}
    block = torchsan.watch() if watched else contextlib.nullcontext()
    with block:
        exec(compile(LIVES, str(path), "exec"), namespace)
    return namespace, getattr(block, "report", None)


def test_variables_stay_as_they_are_and_live_no_longer(tmp_path, monkeypatch):
    traced = []
    start = catching.Catcher.start
    monkeypatch.setattr(catching.Catcher, "start", lambda *args: traced.append(start(*args)) or traced[-1])
    alone, _ = _run(tmp_path / "program.py", watched=False)
    watched, report = _run(tmp_path / "program.py", watched=True)
    assert traced == [True]
    assert [finding.code for finding in report.alarms] == ["TS501"]
    assert watched["turns"] == alone["turns"] == 14
    assert watched["alive"] == alone["alive"]
    assert torch.equal(torch.stack(watched["history"]), torch.stack(alone["history"]))


def test_a_debugger_is_left_alone(tmp_path):
    def debugger(frame, event, arg):
        return None

    sys.settrace(debugger)
    try:
        _, report = _run(tmp_path / "program.py", watched=True)
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)
    # Who puts it there is not seen then, so the line that made it is what is told.
    made = next(n for n, line in enumerate(LIVES.splitlines(), 1) if line.strip().startswith("loss = "))
    assert [finding.primary.line for finding in report.alarms] == [made]

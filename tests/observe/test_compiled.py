"""Programs with torch.compile: both lines inside regions, no wrong line, no alarm where there is none."""

from __future__ import annotations

import importlib
import subprocess
import sys

import compiled_sharing
import pytest
import torch
from compiled_programs import CLEAN, HAZARDS, SETUP

import torchsan
from torchsan.observe.freezing import FrozenMemoryWritten

HAZARDS = {**HAZARDS, **compiled_sharing.HAZARDS}
CLEAN = {**CLEAN, **compiled_sharing.CLEAN}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_compiler():
    yield
    torch._dynamo.reset()


def _check(watched) -> None:
    told = watched.lines("mutated")
    assert watched.marked("mutates") <= told
    assert told <= watched.marked("mutates")
    saved = watched.lines("saved")
    assert saved <= watched.marked("saves") or not watched.marked("saves")
    assert not watched.marked("saves") or saved
    assert watched.report.notes == []


@pytest.mark.parametrize("name", HAZARDS)
def test_hazard(name, watch_program):
    _check(watch_program(SETUP.format(backend="aot_eager") + HAZARDS[name]))


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, watch_program):
    watched = watch_program(SETUP.format(backend="aot_eager") + CLEAN[name])
    assert watched.error is None
    assert watched.alarms == []
    assert watched.report.notes == []


def test_lines_that_inductor_wrote_are_nobodys(tmp_path, monkeypatch):
    from torchsan.observe.sites import TORCH, USER, kind_of_path

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kernels"))
    assert kind_of_path(str(tmp_path / "torchinductor_me" / "ab" / "cabc.py")) == TORCH
    assert kind_of_path(str(tmp_path / "kernels" / "ab" / "cabc.py")) == TORCH
    assert kind_of_path(str(tmp_path / "train.py")) == USER


SNAP = """
@torch.compile(backend="{backend}")
def snap(values):
    values.mul_(4).round_().div_(4)  # mutates
w = torch.randn(4, requires_grad=True)
z = torch.sigmoid(w)  # saves
snap({given})
z.sum().backward()
"""


@pytest.mark.parametrize(("given", "codes"), [("z.data", ["TS201"]), ("z.data.clone()", [])])
def test_region_writes_what_was_taken_by_data(given, codes, watch_program):
    watched = watch_program("import torch\n" + SNAP.format(backend="aot_eager", given=given))
    assert [finding.code for finding in watched.report.findings] == codes
    assert watched.lines("mutated") == (watched.marked("mutates") if codes else set())


LIGHT = """
import torch
from torch import nn

class LightExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits):
        out = torch.exp_(logits)  # mutates
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return grad * out

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.log_scale = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.fc(x) * LightExp.apply(self.log_scale)

head = torch.compile(Head(), backend="aot_eager")
for _ in range(2):
    head(torch.rand(2, 4)).sum().backward()
"""


def test_gradient_from_a_parameter_that_a_custom_function_overwrites(watch_program):
    watched = watch_program(LIGHT)
    assert [finding.code for finding in watched.alarms] == ["TS321"]
    assert watched.lines("mutated") == watched.marked("mutates")


def test_a_program_that_imports_dynamo_is_compiled_as_without_us(tmp_path):
    """In a process of its own: what dynamo takes for torch's functions is settled when it is first imported."""
    path = tmp_path / "program.py"
    path.write_text(LIGHT.replace("import torch\n", "import torch\nimport torch._dynamo\n", 1))
    command = [sys.executable, "-m", "torchsan", "run", "--format", "concise", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "does not know how to trace" not in done.stderr
    assert "TS321" in done.stderr


HALVE = """
import torch
import torchsan

@torch.compile(backend="aot_eager")
def halve(t):
    t.mul_(0.5)  # mutates
    return t.sum()
"""


def test_frozen_memory_stops_a_region_at_its_line(watch_program):
    call = "kept = torchsan.freeze(torch.ones(3))\ntry:\n    halve(kept)\nfinally:\n    torchsan.thaw(kept)\n"
    watched = watch_program(HALVE + call)
    assert isinstance(watched.error, FrozenMemoryWritten)
    assert any(f":{line}" in str(watched.error) for line in watched.marked("mutates"))


def test_a_value_that_a_region_overwrites_is_healed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "region_that_halves.py").write_text(HALVE)
    halve = importlib.import_module("region_that_halves").halve
    weight = torch.full((3,), 0.5, requires_grad=True)
    with torchsan.heal() as report:
        value = torch.exp(weight)
        halve(value)
        value.sum().backward()
    assert torch.allclose(weight.grad, 0.5 * torch.exp(weight))
    (found,) = report.findings
    (written,) = [span for span in found.spans if span.role == "mutated"]
    assert HALVE.splitlines()[written.line - 1].endswith("# mutates")


FAILS = """
import torch

@torch.compile(backend="aot_eager")
def gate(x):
    open = torch.sigmoid(x)
    open *= 2
    return open.sum()

gate(torch.ones(3, requires_grad=True))
"""


def test_a_failure_to_compile_ends_with_the_users_frames(tmp_path):
    (tmp_path / "gate.py").write_text(FAILS)
    command = [sys.executable, "-m", "torchsan", "run", "--format", "concise", "gate.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    report, *tracebacks = done.stderr.split("Traceback (most recent call last):")
    assert "gate.py:7:5: error[TS101]" in report
    assert [line for line in tracebacks[-1].splitlines() if line.startswith('  File "')] == [
        f'  File "{tmp_path / "gate.py"}", line 10, in <module>'
    ]
    assert len(tracebacks) == 1

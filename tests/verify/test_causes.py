"""The cause that is told is the one that was tested; what cannot be judged is not."""

from __future__ import annotations

import collections
import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchsan
from tests.verify import faults
from torchsan.errors import UsageError
from torchsan.model import Capture, Report
from torchsan.verify import before_capture, child, on_the_spot
from torchsan.verify.compare import Tolerance, tensor_difference
from torchsan.verify.probe import short
from torchsan.verify.sizes import Dimension
from torchsan.verify.subject import Subject
from torchsan.verify.timing import Clock, OutOfTime, now, time_limit, watchdog
from torchsan.verify.truth import Truth


def judged(kind: type[nn.Module], args: Any, method: str, **options: Any) -> Report:
    torch.manual_seed(0)
    return torchsan.verify(kind(), args, methods=[method], **options)


@pytest.mark.parametrize(("kind", "args", "method"), faults.CASES, ids=lambda p: getattr(p, "__name__", None))
def test_the_line_that_is_named_is_the_cause(kind: type[nn.Module], args: Any, method: str) -> None:
    lines, first = inspect.getsourcelines(kind)
    number, marked = next((first + i, line) for i, line in enumerate(lines) if "# <- " in line)
    report = judged(kind, args, method)
    assert report.captures[0].outcome in ("unfaithful", "failed")
    found = [(f.code, Path(f.primary.path).name, f.primary.line) for f in report.findings if f.code != "TS311"]
    assert found == [(marked.rpartition("# <- ")[2].strip(), "faults.py", number)]


@pytest.mark.parametrize(
    ("kind", "args"), [(faults.ReferenceBatch, "faults._fixed(4, 3),"), (faults.Dropped, "faults._fixed(4, 3),")]
)
def test_calls_with_other_values_and_another_mode_reproduce_by_themselves(kind: type[nn.Module], args: str) -> None:
    origin = (
        f"from tests.verify import faults\ntorch.manual_seed(0)\n"
        f"model, args, kwargs = faults.{kind.__name__}(), ({args}), {{}}"
    )
    method = "export" if kind is faults.ReferenceBatch else "jit.trace"
    report = judged(kind, eval(f"({args})", vars(sys.modules[__name__])), method, origin=origin)
    program = report.captures[0].counterexample
    assert program is not None
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "AssertionError" in done.stderr


def test_a_capture_made_in_eval_mode_is_for_eval_mode() -> None:
    model = faults.Normed().eval()
    (capture,) = torchsan.verify(model, (faults._fixed(4, 3),), methods=["jit.trace"]).captures
    assert capture.outcome == "faithful"
    assert capture.checks["other mode"] == "kept as captured"


def test_script_follows_the_mode() -> None:
    (capture,) = torchsan.verify(faults.Normed(), (faults._fixed(4, 3),), methods=["jit.script"]).captures
    assert capture.outcome == "faithful"
    assert capture.checks["other mode"] == "agrees"


def test_a_program_that_captures_in_training_mode_is_told_where_it_captures() -> None:
    args = (faults.Dropped(), (faults._fixed(4, 3),))
    before = before_capture("torch.jit.trace", args, {})
    result = torch.jit.trace(*args, check_trace=False)
    findings = on_the_spot("torch.jit.trace", torch.jit.trace, args, {}, result, before=before, seconds=600)
    (finding,) = [f for f in findings if f.code == "TS313"]
    assert Path(finding.primary.path).name == "test_causes.py"
    assert any(Path(span.path).name == "faults.py" for span in finding.spans)


def test_memory_that_nobody_wrote_to_is_refused_with_its_line() -> None:
    line = inspect.getsourcelines(faults.Unwritten)[1] + 2
    with pytest.raises(UsageError, match=rf"nobody wrote to: .*faults\.py:{line}"):
        judged(faults.Unwritten, (faults._fixed(4, 3),), "jit.trace")
    assert judged(faults.Written, (faults._fixed(4, 3),), "jit.trace").captures[0].outcome == "faithful"


def test_rounding_is_no_difference() -> None:
    assert judged(faults.LongPipeline, (faults._fixed(4, 32),), "jit.trace").captures[0].outcome == "faithful"


class Named(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": x + 1, "product": x * 2}


def test_both_are_said_when_only_a_wrapped_call_works() -> None:
    report = judged(Named, (faults._fixed(4, 3),), "jit.trace")
    assert report.captures[0].outcome == "faithful"
    assert report.captures[0].checks["captured"].startswith("wrapped")
    assert any("torch.jit.trace(model, args) itself fails" in note for note in report.notes)


def test_sizes_that_hang_together_are_found() -> None:
    subject = Subject(faults.TwoScales(), (faults._fixed(2, 4, 8, 8), faults._fixed(2, 4, 4, 4)), {})
    truth = Truth(subject, now() + 600)
    truth.establish()
    truth.explore(values=2)
    axes = {axis for dimension in truth.sizes.dimensions for axis in dimension.axes}
    assert {(0, 2), (0, 3), (1, 2), (1, 3)} <= axes


def test_a_counterexample_is_not_shrunk_to_a_size_that_exporters_refuse_anyway() -> None:
    half = Dimension(((0, 2), (1, 2)), 8, "map", units=(2, 1))
    subject = Subject(faults.TwoScales(), (faults._fixed(2, 4, 8, 8), faults._fixed(2, 4, 4, 4)), {})
    assert half.reaches_one(subject, 2)
    assert not half.reaches_one(subject, 4)


def test_a_number_that_is_a_tensor_in_the_capture_is_compared_by_value() -> None:
    report = judged(faults.WithLength, (faults._fixed(4, 3),), "jit.trace")
    assert report.captures[0].outcome == "faithful", report.captures[0].reason


def test_a_program_fails_by_what_differs_and_not_by_a_number_that_became_a_tensor() -> None:
    origin = (
        "from tests.verify import faults\n"
        "model, args, kwargs = faults.LengthAndBranch(), (faults._fixed(4, 3).abs(),), {}"
    )
    report = judged(faults.LengthAndBranch, (faults._fixed(4, 3).abs(),), "jit.trace", origin=origin)
    done = subprocess.run([sys.executable, "-c", report.captures[0].counterexample], capture_output=True, text=True)
    assert "Tensor-likes are not close" in done.stderr


def test_sizes_are_shown_as_numbers() -> None:
    assert (short(torch.tensor(3)), short(3), short((2, 3))) == ("3", "3", "(2, 3)")


def test_looking_for_unwritten_memory_does_not_load_the_compiler() -> None:
    program = (
        "import sys, torch\nfrom tests.verify import faults\n"
        "from torchsan.verify.subject import Subject\nfrom torchsan.verify.uninitialised import reads_uninitialised\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "assert reads_uninitialised(Subject(faults.Unwritten(), (faults._fixed(4, 3),), {})) is not None\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_a_budget_leaves_out_is_named() -> None:
    subject = Subject(nn.Linear(3, 3), (faults._fixed(4, 3),), {})
    truth = Truth(subject, now() + 600)
    truth.establish()
    truth.deadline = 0.0
    truth.explore()
    assert {"values", "calls", "seed", "dtype"} <= set(truth.untried)
    assert any("shape" in name for name in truth.untried)


def test_equal_tensors_are_not_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("equal tensors need no closer look")

    monkeypatch.setattr(torch, "isclose", refuse)
    assert tensor_difference("output", torch.ones(3), torch.ones(3), Tolerance()) is None


def test_a_limit_holds_in_every_thread() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with time_limit(0.2):
                for _ in range(3_000):
                    time.sleep(0.01)
        except OutOfTime as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_a_process_that_is_made_to_wait_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"wall": 0.0, "worked": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: times["wall"])
    monkeypatch.setattr(time, "process_time", lambda: times["worked"])
    clock = Clock()
    times.update(wall=10.0, worked=2.0)
    assert clock.now() == 2.0
    # Two threads at once are not twice as much; who only waits must come to an end, too.
    times.update(wall=11.0, worked=4.0)
    assert clock.now() == 3.0
    times.update(wall=19.0)
    assert clock.now() == 4.0


def test_a_limit_that_was_not_reached_leaves_nothing_behind() -> None:
    with watchdog(3600):
        total = sum(range(100))
    assert total == 4950
    assert not hasattr(signal, "SIGALRM") or signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def stuck(tell: Any) -> Report:
    tell("methods", ["export", "jit.trace"])
    tell("at", "eager")
    tell("known", Report(captures=[Capture("export", "faithful")]))
    tell("at", "jit.trace")
    # Never comes back to the interpreter, as one long call of torch.
    collections.deque(iter(int, 1), maxlen=0)
    return Report()


def crashing(tell: Any) -> Report:
    tell("methods", ["export", "jit.trace"])
    tell("at", "eager")
    tell("at", "export")
    os.kill(os.getpid(), signal.SIGKILL)
    return Report()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="works in this process where there is no fork")
def test_a_budget_holds_inside_one_call_and_a_crash_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "latest", lambda budget: budget)
    report = child.in_child(stuck, 0.3, contextlib.nullcontext())
    assert [(c.method, c.outcome) for c in report.captures] == [("export", "faithful"), ("jit.trace", "unfinished")]
    assert not report.extra["best_is_faithful"]
    monkeypatch.setattr(child, "latest", lambda budget: 600.0)
    report = child.in_child(crashing, 0.3, contextlib.nullcontext())
    assert [(c.method, c.outcome) for c in report.captures] == [("export", "failed"), ("jit.trace", "unfinished")]
    assert "crashed" in report.captures[0].reason


@pytest.mark.skipif(not hasattr(os, "fork"), reason="works in this process where there is no fork")
def test_what_the_child_refuses_is_refused() -> None:
    def refusing(tell: Any) -> Report:
        raise UsageError("no such model")

    with pytest.raises(UsageError, match="no such model"):
        child.in_child(refusing, 60, contextlib.nullcontext())

"""Several threads under one recorder: one order of events, nobody's findings lost, nobody's lines lost."""

from __future__ import annotations

import threading

import pytest
import torch

import torchsan
from torchsan.observe.clock import Stamp, clock

WRITTEN_BEFORE = """
import threading
import torch

net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
written = threading.Event()


def updater():
    for _ in range(50):
        net(torch.ones(1, 2)).sum()
    for p in net.parameters():
        p.data.mul_(0.5)
    written.set()


def learner():
    written.wait(20)
    torch.autograd.grad(net(torch.ones(1, 2)).sum(), net[0].weight)


threads = [threading.Thread(target=f) for f in (updater, learner)]
[t.start() for t in threads]
[t.join(20) for t in threads]
"""

WRITTEN_AFTER = """
import threading
import torch

net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
built, stepped = threading.Event(), threading.Event()


def learner():
    for _ in range(20):
        net(torch.ones(1, 2)).sum()
    loss = net(torch.ones(1, 2)).sum()
    built.set()
    stepped.wait(20)
    torch.autograd.grad(loss, net[0].weight)


def updater():
    built.wait(20)
    for p in net.parameters():
        p.data.mul_(0.5)  # write
    stepped.set()


threads = [threading.Thread(target=f) for f in (learner, updater)]
[t.start() for t in threads]
[t.join(20) for t in threads]
"""

MAIN_BUILDS = """
import threading
import torch

w = torch.ones(3, requires_grad=True)
h = w.exp()


def spoil():
    h.data.mul_(2)  # write


thread = threading.Thread(target=spoil)
thread.start()
thread.join()
h.sum().backward()
"""

LOUD_IN_THREAD = """
import threading
import torch

errors = []


def work():
    h = torch.ones(3, requires_grad=True).exp()
    h.mul_(2)  # write
    try:
        h.sum().backward()
    except RuntimeError as error:
        errors.append(error)


thread = threading.Thread(target=work)
thread.start()
thread.join()
assert errors
"""


def test_a_write_before_the_forward_of_another_thread_is_no_hazard(watch_program):
    watched = watch_program(WRITTEN_BEFORE)
    assert watched.error is None
    assert watched.codes == []


@pytest.mark.parametrize("source", [WRITTEN_AFTER, MAIN_BUILDS], ids=["two threads", "main and a thread"])
def test_a_write_after_the_forward_of_another_thread_is_seen(watch_program, source):
    watched = watch_program(source)
    assert set(watched.codes) == {"TS201"}
    assert watched.lines("mutated") == watched.marked("write")
    assert watched.lines("saved")


def test_an_error_inside_a_thread_is_explained(watch_program):
    watched = watch_program(LOUD_IN_THREAD)
    assert watched.codes == ["TS101"]
    assert watched.lines("mutated") == watched.marked("write")


def test_stamps_compare_by_number_inside_a_thread_and_by_moment_between_threads():
    clock.start()
    try:
        early, late = Stamp(90, 1, 5), Stamp(3, 2, 6)
        assert early < late
        assert late > early
        assert Stamp(4, 1, 9) < Stamp(5, 1, 8)
        assert Stamp(0, 2, 1) > 1000  # a plain number is from the time before other threads took part
        assert Stamp(7, clock.home, 1) == 7
        assert Stamp(7, 1, 1) - 1 == Stamp(6, 1, 1)
    finally:
        clock.stop()


def _spoiled() -> None:
    h = torch.ones(3, requires_grad=True).exp()
    h.data.mul_(2)
    h.sum().backward()


def _refused() -> None:
    h = torch.ones(3, requires_grad=True).exp()
    h.mul_(2)
    h.sum().backward()


def test_a_block_of_a_second_thread_outlives_the_first_ones():
    first_over, second_open = threading.Event(), threading.Event()
    reports = []

    def second() -> None:
        with torchsan.watch() as report:
            second_open.set()
            first_over.wait(20)
            _spoiled()
        reports.append(report)

    thread = threading.Thread(target=second)
    with torchsan.watch():
        thread.start()
        second_open.wait(20)
    first_over.set()
    thread.join(20)
    assert [finding.code for finding in reports[0].findings] == ["TS201"]
    with torchsan.watch() as report:  # and everything has been taken out
        pass
    assert report.notes == []


def test_a_backward_does_not_take_the_lines_of_a_graph_that_another_thread_builds():
    inside, built = threading.Event(), threading.Event()
    lines = []

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            inside.set()
            built.wait(20)
            return gradient * 2

    def builder() -> None:
        inside.wait(20)
        h = torch.ones(3, requires_grad=True).exp()
        built.set()
        h.data.mul_(2)
        h.sum().backward()

    with torchsan.watch() as report:
        thread = threading.Thread(target=builder)
        thread.start()
        Slow.apply(torch.ones(3, requires_grad=True)).sum().backward()
        thread.join(20)
    lines = [finding.span("saved") for finding in report.findings if finding.code == "TS201"]
    assert len(lines) == 1
    assert lines[0] is not None


def test_a_failing_backward_beside_another_thread_keeps_torchs_advice_to_itself(recwarn):
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(20,))
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="TS101"):
            torchsan.watch()(_refused)()
    finally:
        stop.set()
        thread.join()
    assert not [warning for warning in recwarn if "Error detected" in str(warning.message)]


def test_a_hook_that_writes_the_gradient_which_grad_hands_back_is_right():
    x = torch.ones(3, requires_grad=True) * 2
    x.register_hook(lambda gradient: gradient.mul_(2))
    with torchsan.watch() as report:
        (got,) = torch.autograd.grad((x**2).sum(), x)
    assert got.tolist() == [8.0, 8.0, 8.0]
    assert report.findings == []

"""Sizes that are solved for: the other side of a branch, and what an export refuses by its own account."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import torchsan
from torchsan.model import Report
from torchsan.model.source import shown_path
from torchsan.verify.questions import size_questions, turning_sizes
from torchsan.verify.sizes import Dimension, Sizes
from torchsan.verify.subject import Subject
from torchsan.verify.turns import turned, turns_at


def traced(model: nn.Module, *args: Any) -> Report:
    return torchsan.verify(model, args, methods=["jit.trace"])


class GroupedQueries(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        if k.shape[1] < q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        return q @ k.transpose(-1, -2)


def test_one_dimension_alone_is_a_multiple_of_another() -> None:
    report = traced(GroupedQueries(), torch.ones(2, 4, 3, 5), torch.ones(2, 4, 3, 5))
    assert report.captures[0].outcome == "unfaithful"
    finding = next(f for f in report.findings if f.code == "TS304")
    assert finding.spans[0].line == GroupedQueries.forward.__code__.co_firstlineno + 1


class Shared(nn.Module):
    """With more labels than rows the mean is of nothing, and no number."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        times = int(x.size(0) / labels.size(0))
        return (x - labels.repeat(times)[:, None]).abs().mean()


class Spread(nn.Module):
    """No number for one row, in eager and in a capture."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.std(1)


def test_a_number_where_the_model_has_none_is_a_frozen_size() -> None:
    report = traced(Shared(), torch.rand(4), torch.rand(4))
    assert [(f.code, f.spans[0].line) for f in report.findings] == [
        ("TS304", Shared.forward.__code__.co_firstlineno + 1)
    ]
    assert "instead of nan" in report.captures[0].reason


def test_no_number_in_both_is_no_difference() -> None:
    report = torchsan.verify(Spread(), (torch.rand(2, 3),), methods=["jit.trace", "export"])
    assert [c.outcome for c in report.captures] == ["faithful", "faithful"]


class LongOnes(nn.Module):
    """The other side is far from the example, and the branch names it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] + 1 > 700:
            x = x * 2
        return x + 1


def test_a_branch_is_solved_for_the_size_that_it_names() -> None:
    report = traced(LongOnes(), torch.ones(4, 2))
    assert report.captures[0].outcome == "unfaithful"
    assert [(f.code, f.spans[0].line) for f in report.findings] == [
        ("TS304", LongOnes.forward.__code__.co_firstlineno + 1)
    ]


class Squared(nn.Module):
    """No formula is known for a power, and no size that is tried takes the other side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.tensor(x.shape[0]).float().exp() > 1e30:
            x = x * 2
        return x + 1


def test_a_branch_that_nothing_took_the_other_way_is_not_called_harmless() -> None:
    report = traced(Squared(), torch.ones(2, 2))
    judged = [note for note in report.notes if "TracerWarning" in note]
    assert report.captures[0].outcome == "faithful"
    assert any("no input took the other side" in note for note in judged)


class Asserts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1] == 3
        if x.shape[0] > 2:
            return x + 1
        return 1 + x


def test_a_branch_that_was_taken_both_ways_is_harmless_and_so_is_one_whose_other_side_raises() -> None:
    first = Asserts.forward.__code__.co_firstlineno
    by_line = {int(n.split(":")[1]): n for n in traced(Asserts(), torch.ones(2, 3)).notes if "TracerWarning" in n}
    assert "the model itself refuses" in by_line[first + 1]
    assert by_line[first + 2].endswith("inputs tried")


class Scaled(nn.Module):
    """Results that rounding moves a little, and a frozen size that moves them by far more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 1e5).sin() * 1e-2 + x / int(x.size(0))


def test_a_difference_much_larger_than_the_models_own_sensitivity_counts() -> None:
    report = traced(Scaled(), torch.linspace(0.3, 2, 6).view(3, 2))
    assert report.captures[0].outcome == "unfaithful"
    assert report.captures[0].checks["x.shape[0]"] == "differs"


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, stride=4, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu()


def test_an_export_is_asked_which_sizes_it_refuses() -> None:
    report = torchsan.verify(Halved(), (torch.randn(2, 1, 32, 32),), methods=["export"])
    capture = report.captures[0]
    assert capture.outcome == "unfaithful"
    assert "refuses an inner size of 1" in capture.checks.values()
    assert [(f.code, f.level) for f in report.findings] == [("TS304", "warning")]
    assert "size 1 is special to exporters" in report.findings[0].message


class Scores(nn.Module):
    """Both batches of 1 are broadcast in eager; an export has taken one for the other."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x / 3
        return torch.matmul(x, y.transpose(0, 1))


def test_a_refused_size_of_one_is_told_at_the_line_that_took_two_sizes_for_equal() -> None:
    report = torchsan.verify(Scores(), (torch.rand(4, 4, 4, 4), torch.rand(4, 4, 4, 4)), methods=["export"])
    assert "refuses size 1" in report.captures[0].checks.values()
    assert [(f.code, f.spans[0].line) for f in report.findings] == [
        ("TS304", Scores.forward.__code__.co_firstlineno + 2)
    ]


def _ways(x: int) -> int:
    if x > 2:
        return 1
    return 0


def test_ways_are_told_apart() -> None:
    lines = {(shown_path(__file__), _ways.__code__.co_firstlineno + 1)}
    runs = []
    for value in (1, 2, 3):
        with turns_at(lines) as turns:
            _ways(value)
        runs.append(turns)
    assert not turned(lines, runs[0], runs[1])
    assert turned(lines, runs[0], runs[2]) == lines


def test_questions_are_formulas_of_sizes() -> None:
    subject = Subject(GroupedQueries(), (torch.ones(2, 4, 3, 5), torch.ones(2, 4, 3, 5)), {})
    line = GroupedQueries.forward.__code__.co_firstlineno + 1
    question = size_questions(subject, {(shown_path(__file__), line)})[0]
    assert (question.answer, set(question.axes)) == (False, {(0, 1), (1, 1)})
    assert question.formula({(0, 1): 8})
    assert not question.formula({(1, 1): 8})
    heads = Dimension(((0, 1), (1, 1)), 4, "heads")
    offered = [variant.label for variant in turning_sizes(subject, question, Sizes([heads]))]
    assert {"q.shape[1] alone: 4 → 8", "k.shape[1] alone: 4 → 2"} <= set(offered)


class MaskedWeight(nn.Module):
    """Writes through `.data` what a second call would write again: a trace has it as tracing left it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mask", torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear.weight.data.mul_(self.mask)
        return self.linear(x)


def test_what_forward_writes_once_and_for_all_is_told_as_a_warning() -> None:
    report = traced(MaskedWeight(), torch.ones(2, 3))
    assert report.captures[0].outcome == "faithful"
    told = [(f.code, f.level, f.spans[0].line) for f in report.findings if f.code == "TS308"]
    assert told == [("TS308", "warning", MaskedWeight.forward.__code__.co_firstlineno + 1)]


class Cut(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] - 4] * 2


def test_a_limit_of_sizes_is_told_as_such() -> None:
    report = torchsan.verify(Cut(), (torch.ones(9),), methods=["export"])
    finding = report.findings[0]
    assert finding.code == "TS304"
    assert "holds sizes to `x.size()[0] >= " in finding.message
    assert "the model's own result is empty there" in finding.notes[0]


def _sum_over(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return x.sum(dim=dims)


class DimsFromTensor(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dims = torch.arange(1, x.dim()).tolist()
        return _sum_over(x, dims)


def test_a_read_out_is_named_where_it_is_made_and_not_where_it_is_used() -> None:
    report = torchsan.verify(DimsFromTensor(), (torch.ones(2, 3, 4),), methods=["export"])
    first = DimsFromTensor.forward.__code__.co_firstlineno
    assert report.captures[0].outcome == "failed"
    assert [(f.code, f.spans[0].line) for f in report.findings] == [("TS303", first + 1)]
    assert "it is read out at" in report.captures[0].reason


class AddsToView(nn.Module):
    """TorchScript's optimiser makes a leaf of what `+=` writes to, and refuses on a later call."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 1)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (torch.sum(self.table(x), dim=1) + self.bias).squeeze(1)
        z = self.table(x)
        y += (torch.sum(z, dim=1) ** 2).squeeze(1)
        return torch.sigmoid(y)


def test_a_write_that_the_optimiser_cannot_take_is_named() -> None:
    report = traced(AddsToView(), torch.randint(0, 5, (2, 3)))
    told = [(f.code, f.spans[0].line) for f in report.findings]
    assert told == [("TS314", AddsToView.forward.__code__.co_firstlineno + 3)]


class Averages(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) / torch.tensor([float(x.shape[0])])


def test_given_calls_of_another_size_tell_nothing_new_where_the_size_alone_is_wrong() -> None:
    report = torchsan.verify(Averages(), (torch.ones(3, 1),), methods=["jit.trace"], more=[(torch.ones(4, 1),)])
    assert [f.code for f in report.findings] == ["TS304"]

"""`watch` as a block and as a decorator."""

from __future__ import annotations

import pytest
import torch

import torchsan


def _broken():
    h = torch.exp(torch.nn.Linear(2, 2)(torch.ones(1, 2)))
    h += 1
    h.sum().backward()


def test_decorator_explains():
    with pytest.raises(RuntimeError, match="TS101") as raised:
        torchsan.watch()(_broken)()
    assert "modified by an inplace operation" in str(raised.value)
    assert "add_" not in vars(torch.Tensor)


def test_report_is_filled_and_findings_are_announced():
    heard = []
    with pytest.raises(RuntimeError), torchsan.watch(on_finding=heard.append) as report:
        _broken()
    assert [finding.code for finding in report.findings] == ["TS101"]
    assert heard == report.findings


def test_inner_blocks_join_the_outer_one():
    with torchsan.watch() as outer:
        with torchsan.watch() as inner:
            assert inner is outer
        h = torch.exp(torch.ones(2, requires_grad=True))
        h.data.mul_(2)
        h.sum().backward()
    assert [finding.code for finding in outer.findings] == ["TS201"]


def test_an_error_of_another_kind_is_left_as_it_is():
    with pytest.raises(ZeroDivisionError) as raised, torchsan.watch() as report:
        1 / 0  # noqa: B018
    assert str(raised.value) == "division by zero"
    assert report.findings == []

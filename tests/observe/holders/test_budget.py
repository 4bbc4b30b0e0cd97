"""Looking has a share of the run's time, and says so when it is used up."""

from __future__ import annotations

from torchsan.observe.holders import budget
from torchsan.observe.timing import Share


def test_a_budget_that_is_used_up_is_told(monkeypatch):
    monkeypatch.setattr(budget, "ALLOWANCE", 0.0)
    monkeypatch.setattr(budget, "SHARE", 0.0)
    spent = budget.Budget()
    assert spent.allows()
    assert spent.remark == ""
    spent.spent = 1.0
    assert not spent.allows()
    assert "left out 1 times" in spent.remark


def test_a_share_grows_with_the_run(monkeypatch):
    monkeypatch.undo()
    share = Share(allowance=0.5, share=0.1)
    share.started -= 10.0
    share.spent = 1.4
    assert share.allows()
    share.spent = 1.7
    assert not share.allows()

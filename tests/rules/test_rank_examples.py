"""The examples of the rules about several processes, on real ranks: BAD is told at its line, GOOD is silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import Ranks, run_ranks

from torchsan.rules import all_rules

RULES = [rule for rule in all_rules().values() if rule.family == "4"]


def run(folder: Path, source: str, ranks: int) -> Ranks:
    path = folder / "program.py"
    path.write_text(source)
    return run_ranks(path, ranks, patience=8)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_bad_is_reported_at_the_marked_line(rule, tmp_path):
    ranks = run(tmp_path, rule.bad, rule.ranks)
    assert rule.code in ranks.codes, (ranks.codes, ranks.outputs)
    assert rule.bad_line() in ranks.lines(rule.code)
    assert ranks.report.notes == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_good_is_silent(rule, tmp_path):
    ranks = run(tmp_path, rule.good, rule.ranks)
    assert set(ranks.statuses) == {0}, ranks.outputs
    assert ranks.codes == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_page_answers_the_questions(rule):
    for heading in ("What it is.", "What goes wrong.", "How to fix.", "When to ignore."):
        assert heading in rule.page

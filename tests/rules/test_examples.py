"""Every rule's own examples: BAD is reported under its code at the marked line, GOOD is silent."""

from __future__ import annotations

import pytest

from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import Source
from torchsan.rules import all_rules, find_rule

RUN = ("TS321",)
RULES = [rule for rule in all_rules().values() if (rule.family in "12" and rule.judge) or rule.code in RUN]
STATIC = [rule for rule in all_rules().values() if rule.judge is None and rule.check is not None]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_bad_is_reported_at_the_marked_line(rule, watch_program):
    watched = watch_program(rule.bad)
    found = [finding for finding in watched.report.findings if finding.code == rule.code]
    assert found, f"only {watched.codes}"
    assert found[0].primary.line == rule.bad_line()
    assert not watched.report.notes


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_good_is_silent(rule, watch_program):
    watched = watch_program(rule.good)
    assert watched.error is None
    assert watched.codes == []


@pytest.mark.parametrize("rule", STATIC, ids=lambda rule: rule.code)
def test_what_only_source_tells(rule):
    found = analyse(Source("bad.py", rule.bad)).findings
    assert [(f.code, f.primary.line, f.certainty) for f in found] == [(rule.code, rule.bad_line(), "certain")]
    assert analyse(Source("good.py", rule.good)).findings == []


@pytest.mark.parametrize("rule", [*RULES, *STATIC], ids=lambda rule: rule.code)
def test_page_answers_the_questions(rule):
    for heading in ("What it is.", "What goes wrong.", "How to fix.", "When to ignore."):
        assert heading in rule.page


def test_rules_are_found_by_code_and_by_name():
    assert find_rule("ts101") is find_rule("101") is find_rule("saved-value-overwritten")
    assert find_rule("nonsense") is None


def test_names_are_unique():
    names = [rule.name for rule in all_rules().values()]
    assert len(names) == len(set(names))

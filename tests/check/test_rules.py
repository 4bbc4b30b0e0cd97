"""Every rule that can be decided from source: BAD is found at its line, GOOD is silent."""

from __future__ import annotations

import pytest

from torchsan.rules import all_rules

RULES = [rule for rule in all_rules().values() if rule.check is not None]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_bad_is_found_from_source(rule, check):
    found = {(f.code, f.primary.line) for f in check(rule.bad)}
    assert (rule.code, rule.bad_line()) in found


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.code)
def test_good_is_silent(rule, check):
    assert check(rule.good) == []

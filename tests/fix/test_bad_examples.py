"""Every rule that names rewrites: `fix` turns its BAD into a program that passes."""

from __future__ import annotations

import pytest

from torchsan.fix.rewrites import REWRITES
from torchsan.rules import all_rules

MENDABLE = [rule for rule in all_rules().values() if rule.fixes]
# Captures are mended from a factory, in processes of their own: see tests/commands/test_fix.py.
RUNNING = [rule for rule in MENDABLE if rule.family in "125"]


def shows_nothing(outcome) -> bool:
    """The example runs and neither prints nor keeps what is wrong: no edit can be told from it."""
    return not outcome.first.failed and not outcome.changed


@pytest.mark.parametrize("rule", RUNNING, ids=lambda rule: rule.code)
def test_bad_example_is_mended(rule, mend):
    outcome = mend(rule.bad)
    assert outcome.mends[0].finding.code == rule.code
    if shows_nothing(outcome):
        assert rule.family == "2"
        assert not any(mend.proved for mend in outcome.mends)
        return
    assert outcome.clean, [(m.finding.code, m.dropped) for m in outcome.mends]
    [source] = outcome.changed.values()
    exec(compile(source.raw, "fixed.py", "exec"), {"__name__": "__main__"})


def test_rules_and_rewrites_agree():
    named = {name for rule in MENDABLE for _, name in rule.fixes}
    assert named == set(REWRITES), "a rewrite that no rule names is never tried"

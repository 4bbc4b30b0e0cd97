"""Every rule that names rewrites: `fix` turns its BAD into a program that passes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchsan.fix.engine import Engine
from torchsan.fix.labs import Subprocess
from torchsan.rules import all_rules

MENDABLE = [rule for rule in all_rules().values() if rule.fixes]


@pytest.mark.slow
@pytest.mark.parametrize("rule", MENDABLE, ids=lambda rule: rule.code)
def test_bad_example_is_mended(rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.py"
    path.write_text(rule.bad)
    outcome = Engine(Subprocess(str(path), None, [], limit=10)).run()
    assert outcome.mends[0].finding.code == rule.code
    assert outcome.clean, [mend.dropped for mend in outcome.mends]
    assert path.read_text() == rule.bad
    [edited] = outcome.changed.values()
    path.write_bytes(edited.raw)
    assert subprocess.run([sys.executable, str(path)], capture_output=True, check=False).returncode == 0


def test_every_rewrite_that_a_rule_names_exists():
    from torchsan.fix.rewrites import REWRITES

    named = {name for rule in MENDABLE for _, name in rule.fixes}
    assert named <= set(REWRITES)
    assert named == set(REWRITES), "a rewrite that no rule names is never tried"

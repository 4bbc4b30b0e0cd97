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


def test_an_op_that_saves_other_values_in_another_torch_is_told(tmp_path, monkeypatch, capsys):
    from torchsan.__main__ import main

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for op, told in (("ldexp", True), ("mul", False)):
        file = tmp_path / f"{op}.py"
        file.write_text(
            "import torch\nw = torch.ones(2, requires_grad=True)\ny = w * 2\nz = w * 3\n"
            f"h = torch.{op}(y, z)\nz += 1\nh.sum().backward()\n"
        )
        main(["check", "--possible", str(file)])
        text = capsys.readouterr().out
        assert "TS101" in text
        assert ("saves other values in torch 2.9.1" in text) is told

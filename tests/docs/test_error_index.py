"""The index from error text to page is right about torch: every error of a bad example leads to its rule."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from torchsan.rules import Rule, all_rules

INDEX = Path(__file__).parents[2] / "docs" / "_build" / "errors.toml"
ENTRIES: list[dict[str, Any]] = tomllib.loads(INDEX.read_text(encoding="utf-8"))["error"]


def _error(program: str) -> str:
    """What a program dies of; empty when it lives."""
    try:
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    except Exception as error:
        return str(error)
    return ""


# Programs of the 4xx rules need other processes; their errors are not torch's words about a tensor.
ALONE = [rule for rule in all_rules().values() if rule.family != "4"]


@pytest.mark.parametrize("rule", ALONE, ids=lambda rule: rule.code)
@pytest.mark.filterwarnings("ignore")
def test_the_error_of_a_bad_example_leads_to_its_rule(rule: Rule) -> None:
    if error := _error(rule.bad):
        found = [e["codes"] for e in ENTRIES if re.search(e.get("pattern", re.escape(e["text"])), error)]
        assert any(rule.code in codes for codes in found), error


def test_the_index_names_only_rules() -> None:
    assert {code for entry in ENTRIES for code in entry["codes"]} <= set(all_rules())

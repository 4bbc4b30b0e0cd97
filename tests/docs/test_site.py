"""What the site is made from: the rules' pages are whole, and the gallery's programs do what it says."""

from __future__ import annotations

import importlib.util
import runpy
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import torchsan
from torchsan.model import Report
from torchsan.rules import Rule, all_rules

DOCS = Path(__file__).parents[2] / "docs"
CASES = sorted(path.parent for path in (DOCS / "gallery").glob("*/about.toml"))


def _about(case: Path) -> dict[str, str]:
    return tomllib.loads((case / "about.toml").read_text(encoding="utf-8"))


RULES = all_rules()


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "_build" / "hooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_rules_page_is_whole(rule: Rule, hooks: Any) -> None:
    page = hooks.rule_page(rule)
    for heading in ("What it is", "What goes wrong", "How to fix", "When to ignore", "Example"):
        assert f"\n## {heading}\n" in page, heading


def test_every_rule_is_in_the_index(hooks: Any) -> None:
    index = hooks.rules_index(RULES)
    assert all(f"[{code}]({code.lower()}.md)" in index for code in RULES)


def _watched(program: Path) -> tuple[Report, bool]:
    """What is found in a program, and whether it ran to its end."""
    watch = torchsan.watch()
    try:
        with watch:
            runpy.run_path(str(program), run_name="__main__")
    except RuntimeError:
        return watch.report, False
    return watch.report, True


RUN = [case for case in CASES if _about(case).get("verb", "run") == "run"]
VERIFIED = [case for case in CASES if _about(case).get("verb") == "verify"]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_a_case_is_reported_before_and_silent_after(case: Path) -> None:
    about = _about(case)
    before, _ = _watched(case / "before.py")
    after, ran = _watched(case / "after.py")
    assert about["code"] in [finding.code for finding in before.alarms]
    assert about["code"] in RULES
    assert ran
    assert after.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("case", VERIFIED, ids=lambda case: case.name)
def test_a_capture_is_reported_before_and_faithful_after(case: Path) -> None:
    verify: Any = torchsan.verify
    about = _about(case)
    factory = about["factory"].removeprefix(":")
    before = verify(*runpy.run_path(str(case / "before.py"))[factory](), budget=3600)
    after = verify(*runpy.run_path(str(case / "after.py"))[factory](), budget=3600)
    assert about["code"] in [finding.code for finding in before.alarms]
    assert after.findings == []

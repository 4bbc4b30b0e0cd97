"""Every 3xx rule: BAD is reported under its code at its marked line, GOOD is silent."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import torchsan
from torchsan.model import Report
from torchsan.rules import Rule, all_rules

# The others are told of programs that run, and are tried with those (test_examples.py).
RULES = [rule for rule in all_rules().values() if rule.family == "3" and "def make" in rule.bad]


def load(text: str, path: Path) -> ModuleType:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verified(text: str, path: Path) -> Report:
    model, args = load(text, path).make()
    return torchsan.verify(model, args, methods=["jit.trace", "export"], budget=3600)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_bad_is_reported_at_its_line(rule: Rule, tmp_path: Path) -> None:
    path = tmp_path / f"bad_{rule.code.lower()}.py"
    report = verified(rule.bad, path)
    found = {(f.code, Path(f.primary.path).name, f.primary.line) for f in report.findings}
    assert (rule.code, path.name, rule.bad_line()) in found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_good_is_silent_and_some_capture_of_it_is_faithful(rule: Rule, tmp_path: Path) -> None:
    report = verified(rule.good, tmp_path / f"good_{rule.code.lower()}.py")
    assert rule.code not in {finding.code for finding in report.findings}
    assert report.extra["best_is_faithful"]

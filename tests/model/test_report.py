"""The JSON is the contract: what is written can be read, whatever it holds."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchsan.model import SCHEMA, Capture, Finding, Fix, Report, Span
from torchsan.version import __version__

text = st.text(max_size=12)
spans = st.builds(
    Span,
    path=text,
    line=st.integers(1, 999),
    column=st.integers(1, 99),
    end_line=st.integers(1, 999),
    end_column=st.integers(1, 99),
    role=st.sampled_from(["origin", "saved", "aliased", "mutated", "needed", "cause"]),
    label=text,
    primary=st.booleans(),
)
fixes = st.builds(
    Fix,
    title=text,
    applicability=st.sampled_from(["verified", "safe", "unsafe"]),
    diff=text,
    cost_bytes=st.integers(0, 10**9),
    proof=st.dictionaries(text, st.integers()),
)
findings = st.builds(
    Finding,
    code=st.sampled_from(["TS101", "TS305"]),
    name=text,
    level=st.sampled_from(["error", "warning", "note"]),
    certainty=st.sampled_from(["proved", "certain", "possible"]),
    message=text,
    spans=st.lists(spans, min_size=1, max_size=4).map(tuple),
    why=text,
    notes=st.lists(text.filter(lambda t: not t.startswith("why: ")), max_size=3).map(tuple),
    fixes=st.lists(fixes, max_size=2).map(tuple),
    count=st.integers(1, 5),
)
captures = st.builds(Capture, method=text, outcome=st.sampled_from(["faithful", "unfaithful", "failed"]), reason=text)


@given(st.lists(findings, max_size=4), st.lists(captures, max_size=3), st.lists(text, max_size=2))
def test_round_trip(found, captured, notes):
    report = Report(command=["run", "x.py"], findings=found, captures=captured, notes=notes, torch="2.13.0")
    data = json.loads(json.dumps(report.as_json()))
    back = Report.from_json(data)
    assert back.findings == found
    assert back.captures == captured
    assert back.notes == notes
    assert back.as_json() == report.as_json()


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match="torchsan/1"):
        Report.from_json({"schema": "torchsan/2"})


@given(st.lists(findings, min_size=1, max_size=6))
def test_adding_counts_equal_findings(found):
    report = Report()
    report.extend(found)
    assert sum(f.count for f in report.findings) == sum(f.count for f in found)
    assert len({f.key for f in report.findings}) == len(report.findings)


def test_primary_is_the_marked_span_or_the_first():
    one = Span("a.py", 1, 1, 1, 2, "saved", "")
    two = Span("a.py", 2, 1, 2, 2, "mutated", "", primary=True)
    finding = Finding("TS101", "n", "error", "proved", "m", (one, two))
    assert finding.primary is two
    assert Finding("TS101", "n", "error", "proved", "m", (one,)).primary is one


def test_version_is_stated_once():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert SCHEMA == "torchsan/1"

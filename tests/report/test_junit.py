"""The JUnit output has the elements, attributes and counts that CI servers read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as xml

from report_samples import overwritten, sample

from torchsan.model import Report, Span
from torchsan.report import Options, render

ALLOWED = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "skipped": {"message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "skipped", "system-out"},
}


def _suite(report: Report, **options: bool) -> xml.Element:
    root = xml.fromstring(render(report, "junit", Options(**options)))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ALLOWED[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    [suite] = root
    for name, found in {"tests": "testcase", "failures": "*/failure", "skipped": "*/skipped"}.items():
        assert suite.get(name) == root.get(name) == str(len(suite.findall(found)))
    return suite


def test_alarms_fail_and_notes_do_not(tmp_path: Path) -> None:
    suite = _suite(sample(tmp_path), possible=True)
    failures = {case.get("name", ""): case.find("failure") is not None for case in suite}
    assert failures == {
        "TS101 saved-value-overwritten at line 5, column 1": True,
        "TS204 callers-input-written at line 5, column 1": True,
        "TS301 saved-value-overwritten at line 3, column 1": False,
        "torch.jit.trace": True,
        "torch.export": False,
        "torch.onnx": False,
    }


def test_a_failure_holds_the_full_report(tmp_path: Path) -> None:
    failure = _suite(sample(tmp_path)).find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "TS101"
    assert failure.text is not None
    assert "h += 1" in failure.text
    assert "100% <of> the gradient & more" in failure.text


def test_a_clean_report_is_one_case_that_passes() -> None:
    [case] = _suite(Report())
    assert len(case) == 0


def test_what_xml_cannot_hold_is_replaced() -> None:
    span = Span("odd\udc80\x01.py", 1, 1, 1, 2, "mutated", "\x1b[31m", primary=True)
    finding = overwritten("", spans=(span,), message="bell \x07")
    [case] = _suite(Report(findings=[finding]))
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "bell �"

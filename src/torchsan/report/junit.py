"""JUnit XML, which every CI server can show: a failed test case for each alarm."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as xml

from torchsan.model import Capture, Finding, Report
from torchsan.report import Options
from torchsan.report.full import render as render_full

# What XML 1.0 cannot hold, even escaped.
_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    return _ILLEGAL.sub("�", text)


def _case(suite: xml.Element, group: str, name: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", {"classname": _clean(group), "name": _clean(name), "time": "0"})


def _add_finding(suite: xml.Element, finding: Finding, options: Options) -> None:
    at = finding.primary
    case = _case(suite, at.path, f"{finding.code} {finding.name} at line {at.line}, column {at.column}")
    text = _clean(render_full(Report(findings=[finding]), replace(options, color=False, possible=True)))
    if finding.level == "note":
        xml.SubElement(case, "system-out").text = text
        return
    about = {"type": finding.code, "message": _clean(finding.message)}
    xml.SubElement(case, "failure", about).text = text


def _add_capture(suite: xml.Element, capture: Capture) -> None:
    case = _case(suite, "capture", capture.method)
    told = _clean(capture.reason or capture.counterexample or capture.outcome)
    if capture.outcome == "unfaithful":
        failure = xml.SubElement(case, "failure", {"type": "unfaithful", "message": told})
        failure.text = _clean(capture.counterexample or "")
    elif capture.outcome in ("failed", "unfinished"):
        xml.SubElement(case, "skipped", {"message": told})


def render(report: Report, options: Options) -> str:
    suite = xml.Element("testsuite", {"name": "torchsan"})
    for finding in report.visible(possible=options.possible):
        _add_finding(suite, finding, options)
    for capture in report.captures:
        _add_capture(suite, capture)
    if not len(suite):
        # Servers take a file without cases for a broken one.
        _case(suite, "torchsan", "nothing found")
    counts = {
        "tests": len(suite),
        "failures": len(suite.findall("testcase/failure")),
        "errors": 0,
        "skipped": len(suite.findall("testcase/skipped")),
    }
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", "0")
    root = xml.Element("testsuites", {"name": "torchsan", **{n: str(c) for n, c in counts.items()}})
    root.append(suite)
    xml.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{xml.tostring(root, encoding="unicode")}\n'

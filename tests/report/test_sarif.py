"""The SARIF output holds to the parts of the published schema (2.1.0) that it uses."""

from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_samples import PROGRAM, overwritten, sample

from torchsan.model import Report, Span
from torchsan.report import Options, render


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    """Like every object of the SARIF schema: no property that the standard does not name."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def _list(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


TEXT: dict[str, Any] = {"type": "string"}
COUNT = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = _object(["text"], text=TEXT, markdown=TEXT)
REGION = _object(
    ["startLine"],
    startLine=COUNT,
    startColumn=COUNT,
    endLine=COUNT,
    endColumn=COUNT,
    snippet=_object(["text"], text=TEXT),
)
ARTIFACT = _object(["uri"], uri={"type": "string", "pattern": r"^[^\s<>\\]+$"}, uriBaseId=TEXT)
LOCATION = _object(
    ["physicalLocation"],
    id={"type": "integer", "minimum": 0},
    message=MESSAGE,
    physicalLocation=_object(["artifactLocation"], artifactLocation=ARTIFACT, region=REGION),
)
REPLACEMENT = _object(["deletedRegion"], deletedRegion=REGION, insertedContent=_object([], text=TEXT))
FIX = _object(
    ["artifactChanges"],
    description=MESSAGE,
    artifactChanges=_list(
        _object(
            ["artifactLocation", "replacements"],
            artifactLocation=ARTIFACT,
            replacements=_list(REPLACEMENT, 1),
        ),
        1,
    ),
)
FLOW = _object(
    ["threadFlows"],
    threadFlows=_list(_object(["locations"], locations=_list(_object([], location=LOCATION), 1)), 1),
)
RESULT = _object(
    ["message", "ruleId", "ruleIndex", "locations"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=MESSAGE,
    locations=_list(LOCATION, 1),
    relatedLocations=_list(LOCATION),
    codeFlows=_list(FLOW),
    fixes=_list(FIX),
    occurrenceCount=COUNT,
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    properties={"type": "object"},
)
RULE = _object(
    ["id"],
    id=TEXT,
    name={"type": "string", "pattern": r"^\w+$"},
    shortDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=_object([], level=LEVEL),
)
DRIVER = _object(["name"], name=TEXT, version=TEXT, semanticVersion=TEXT, rules=_list(RULE))
INVOCATION = _object(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    commandLine=TEXT,
    toolExecutionNotifications=_list(_object(["message"], level=LEVEL, message=MESSAGE)),
)
RUN = _object(
    ["tool"],
    tool=_object(["driver"], driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={"type": "object", "additionalProperties": ARTIFACT},
    invocations=_list(INVOCATION),
    results=_list(RESULT),
)
LOG = _object(["version", "runs"], **{"$schema": TEXT, "version": {"enum": ["2.1.0"]}, "runs": _list(RUN)})


def _run(report: Report, **options: Any) -> dict[str, Any]:
    log = json.loads(render(report, "sarif", Options(**options)))
    jsonschema.validate(log, LOG)
    run: dict[str, Any] = log["runs"][0]
    return run


def test_a_report_holds_to_the_schema(tmp_path: Path) -> None:
    run = _run(sample(tmp_path))
    assert [result["ruleId"] for result in run["results"]] == ["TS101", "TS204"]
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    assert run["invocations"][0]["commandLine"] == "torchsan run 'train it.py'"
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "1 file was skipped"


def test_an_empty_report_holds_to_the_schema() -> None:
    assert _run(Report())["results"] == []


def test_possible_findings_are_told_when_asked_for(tmp_path: Path) -> None:
    codes = [result["ruleId"] for result in _run(sample(tmp_path), possible=True)["results"]]
    assert codes == ["TS101", "TS204", "TS301"]


def test_rule_index_points_at_the_rule(tmp_path: Path) -> None:
    run = _run(sample(tmp_path))
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_the_primary_place_is_the_location_and_the_others_are_related(tmp_path: Path) -> None:
    result = _run(sample(tmp_path))["results"][0]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {
        "startLine": 5,
        "startColumn": 1,
        "endLine": 5,
        "endColumn": 7,
        "snippet": {"text": "h += 1"},
    }
    related = [place["message"]["text"] for place in result["relatedLocations"]]
    assert related == ["saved here: exp needs its result (version 0)", "needed here"]
    steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
    lines = [step["location"]["physicalLocation"]["region"]["startLine"] for step in steps]
    assert lines == [4, 5, 6]


def test_a_fix_replaces_the_lines_of_its_diff(tmp_path: Path) -> None:
    result = _run(sample(tmp_path))["results"][0]
    [replacement] = result["fixes"][0]["artifactChanges"][0]["replacements"]
    gone = replacement["deletedRegion"]
    lines = PROGRAM.splitlines(keepends=True)
    lines[gone["startLine"] - 1 : gone["endLine"] - 1] = [replacement["insertedContent"]["text"]]
    assert "".join(lines) == PROGRAM.replace("h += 1", "h = h + 1")


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("my model/train.py", "my%20model/train.py"),
        ("/data/a b.py", "file:///data/a%20b.py"),
        ("<ipython-input-1>", "%3Cipython-input-1%3E"),
    ],
)
def test_paths_become_uris(path: str, uri: str) -> None:
    finding = overwritten(path, spans=(Span(path, 1, 1, 1, 1, "mutated", "", primary=True),))
    place = _run(Report(findings=[finding]))["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri
    assert ("uriBaseId" in place["artifactLocation"]) == (path == "my model/train.py")


def test_the_fingerprint_survives_lines_that_move(tmp_path: Path) -> None:
    path = tmp_path / "train.py"

    def mark(text: str, line: int) -> str:
        path.write_text(text)
        linecache.clearcache()
        span = Span(str(path), line, 1, line, 7, "mutated", "", primary=True)
        run = _run(Report(findings=[overwritten(str(path), spans=(span,))]))
        told: str = run["results"][0]["partialFingerprints"]["torchsanLine/v1"]
        return told

    assert mark(PROGRAM, 5) == mark("\n\n" + PROGRAM, 7)
    assert mark(PROGRAM, 5) != mark(PROGRAM, 6)

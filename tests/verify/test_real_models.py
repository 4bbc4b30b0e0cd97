"""Models in the style of real projects: a capture that freezes something is told by its line, a bold one that does not
is called faithful."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import torchsan

FOLDER = Path(__file__).parents[1] / "programs" / "captures"
MODELS = [
    (row["file"], method, row["lines"] if row["hazard"] else [])
    for row in json.loads((FOLDER / "truth.json").read_text())
    for method in row["methods"]
]
# A width of 4 to 7 comes to 1 after two poolings: eager gives a finite mask of the input's size, export refuses it.
REFUSE_ONE_INSIDE = {("unet_pad.py", "export"): 43}


def verified(file: str, method: str) -> torchsan.Report:
    spec = importlib.util.spec_from_file_location(Path(file).stem, FOLDER / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, args, *kwargs = module.factory()
    return torchsan.verify(model, args, *kwargs, methods=[method])


@pytest.mark.parametrize(("file", "method", "lines"), [row for row in MODELS if row[2]])
@pytest.mark.filterwarnings("ignore")
def test_what_is_frozen_is_told_by_its_line(file: str, method: str, lines: list[int]) -> None:
    report = verified(file, method)
    assert [capture.outcome for capture in report.captures] == ["unfaithful"]
    told = [s.line for f in report.findings for s in f.spans if s.primary and s.path.endswith(file)]
    assert set(told) & set(lines), told


@pytest.mark.parametrize(
    ("file", "method"), [row[:2] for row in MODELS if not row[2] and row[:2] not in REFUSE_ONE_INSIDE]
)
@pytest.mark.filterwarnings("ignore")
def test_what_follows_its_inputs_is_faithful(file: str, method: str) -> None:
    report = verified(file, method)
    assert [capture.outcome for capture in report.captures] == ["faithful"]
    assert report.alarms == []


@pytest.mark.parametrize(("file", "method"), REFUSE_ONE_INSIDE)
@pytest.mark.filterwarnings("ignore")
def test_a_size_that_comes_to_one_inside_is_all_that_is_refused(file: str, method: str) -> None:
    report = verified(file, method)
    (capture,) = report.captures
    assert capture.outcome == "unfaithful"
    assert set(capture.checks.values()) == {"yes", "agrees", "refuses an inner size of 1"}
    (finding,) = report.alarms
    assert (finding.code, finding.level) == ("TS304", "warning")
    assert [s.line for s in finding.spans if s.primary] == [REFUSE_ONE_INSIDE[file, method]]

"""Whole programs of several processes in the style of real projects: each fault is told by its line, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

FOLDER = Path(__file__).parents[1] / "programs" / "parallel"
PROGRAMS = json.loads((FOLDER / "truth.json").read_text())


@pytest.mark.parametrize("row", PROGRAMS, ids=[row["file"] for row in PROGRAMS])
def test_the_fault_is_told_and_nothing_else(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / row["file"]
    path.write_text((FOLDER / row["file"]).read_text())
    world = row.get("ranks", 2)
    ranks = run_ranks(path, world)
    assert ranks.statuses == [0] * world, ranks.outputs
    told_for_sure = [finding.code for finding in ranks.report.findings if finding.certainty != "possible"]
    assert told_for_sure == ([row["code"]] if "code" in row else []), ranks.report.findings
    told = {span.line for finding in ranks.report.findings for span in finding.spans}
    assert set(row.get("lines", ())) <= told

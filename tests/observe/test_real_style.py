"""Whole programs in the style of real projects: one with a fault is told by its line, its bold neighbour is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "programs"
PROGRAMS = {
    f"{kind}/{row['file']}": row
    for kind in ("alias", "leaks")
    for row in json.loads((FOLDER / kind / "truth.json").read_text())
}
# What hangs on what the author meant: told as possible only.
MEANT = {
    *("alias/translation_beams.py", "alias/federated_round.py", "alias/noise_scale.py", "alias/coupling_flow.py"),
}


@pytest.fixture(autouse=True)
def _no_arguments(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program.py"])


def run(name, watch_program):
    text = (FOLDER / name).read_text()
    return watch_program(text.replace('__name__ == "__main__"', "True"), Path(name).name)


# `torchsan`, with all the time that it may want for a look: what is found must not hang on how fast the machine is.
UNHURRIED = (
    "from torchsan.observe.timing import Share; Share.granted = lambda share: float('inf'); "
    "from torchsan.__main__ import main; raise SystemExit(main())"
)


def findings_of_a_whole_run(name, tmp_path):
    output = tmp_path / "report.json"
    command = [sys.executable, "-c", UNHURRIED, "run", "--format", "json", "--output", str(output), str(FOLDER / name)]
    subprocess.run(command, capture_output=True, check=False, timeout=300)
    return json.loads(output.read_text())["findings"]


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if row["hazard"]])
@pytest.mark.filterwarnings("ignore")
def test_the_fault_is_told(name, watch_program, tmp_path):
    if name.startswith("leaks/"):
        # A leak is one when the whole program has ended, and nobody has let go.
        spans = [span for finding in findings_of_a_whole_run(name, tmp_path) for span in finding["spans"]]
        told = [span["line"] for span in spans if span["path"].endswith(Path(name).name)]
    else:
        watched = run(name, watch_program)
        found = watched.report.findings if name in MEANT else watched.alarms
        told = [span.line for finding in found for span in finding.spans if span.path.endswith(Path(name).name)]
    assert set(told) & set(PROGRAMS[name]["lines"])


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if not row["hazard"]])
@pytest.mark.filterwarnings("ignore")
def test_what_is_meant_is_left_alone(name, watch_program):
    watched = run(name, watch_program)
    assert watched.error is None
    assert watched.alarms == []

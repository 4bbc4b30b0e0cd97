"""`%%torchsan` in a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchsan.model import Report

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="notebooks need nbclient and ipykernel")

SRC = Path(__file__).parents[2] / "src"

SILENT = """\
%%torchsan
weight = torch.ones(3, requires_grad=True)
loss = (weight * weight).sum()
weight.detach().numpy()[0] = 5.0
loss.backward()
weight.grad.tolist()"""

LOUD = """\
%%torchsan
h = torch.exp(torch.ones(3, requires_grad=True))

h += 1
h.sum().backward()"""


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    """What each cell of a notebook shows."""
    cells = [
        "%load_ext torchsan\nimport torch",
        SILENT,
        "[finding.code for finding in torchsan_report.findings]",
        "torchsan_report",
        LOUD,
        "%%torchsan\ny = torch.ones(2)\nn = !echo magic\nprint(n[0])",
        "y.tolist()",
        "%%torchsan please\n1",
        "%reload_ext torchsan\n%unload_ext torchsan",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=None, allow_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SRC))
        client.execute()
    return [cell.outputs for cell in notebook.cells]


def _html(outputs: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs)


def _text(outputs: Any) -> str:
    plain = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]
    return "".join(plain)


def _error(outputs: Any) -> Any:
    return next((output for output in outputs if output.output_type == "error"), None)


@pytest.mark.slow
def test_a_silent_hazard_is_shown_below_the_cell(outputs: list[Any]) -> None:
    shown = _html(outputs[1])
    assert "TS201" in shown
    assert "weight.detach().numpy()[" in shown.replace("</span>", "")
    assert "[10.0, 2.0, 2.0]" in _text(outputs[1])
    assert _error(outputs[1]) is None


@pytest.mark.slow
def test_the_report_is_kept_and_shows_itself(outputs: list[Any]) -> None:
    assert "TS201" in _text(outputs[2])
    assert _html(outputs[3]) == _html(outputs[1])


@pytest.mark.slow
def test_an_error_keeps_its_type_and_is_explained_with_the_cells_lines(outputs: list[Any]) -> None:
    error = _error(outputs[4])
    assert error.ename == "RuntimeError"
    assert "error[TS101]: `h` was overwritten" in error.evalue
    # Lines are counted as the notebook counts them: the magic is line 1.
    assert "4 | h += 1" in error.evalue
    assert "TS101" in _html(outputs[4])


@pytest.mark.slow
def test_a_clean_cell_runs_as_ever(outputs: list[Any]) -> None:
    assert "magic" in _text(outputs[5])
    assert "nothing found" in _html(outputs[5])
    assert _text(outputs[6]) == "[1.0, 1.0]"


@pytest.mark.slow
def test_wrong_use_is_told_and_the_extension_leaves(outputs: list[Any]) -> None:
    assert "takes no arguments" in str(outputs[7])
    assert _error(outputs[8]) is None


def test_a_report_escapes_what_it_shows() -> None:
    report = Report(notes=["<img src=x>"])
    assert "<img" not in report._repr_html_()

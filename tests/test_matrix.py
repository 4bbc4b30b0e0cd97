"""`make test-matrix` tells what failed, also where no test came to run, and holds a free-threaded Python to the docs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

# What `python -m torchsan` is on a build without the global lock.
FREE = """#!{python}
import runpy, sys, sysconfig
sysconfig.get_config_var = {{"Py_GIL_DISABLED": 1}}.get
sys.argv = sys.argv[2:]
runpy.run_module("torchsan", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", Path(__file__).with_name("matrix.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _table(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int, output: str, *, version: str) -> int:
    done = subprocess.CompletedProcess([], code, output, "")
    monkeypatch.setattr(matrix, "_version", lambda python: version)
    monkeypatch.setattr(matrix, "_environment", lambda python, torch, folder: Path("python"))
    monkeypatch.setattr(matrix.subprocess, "run", lambda *words, **options: done)
    monkeypatch.setattr(sys, "argv", ["matrix.py", "--python", "python3.12"])
    ended: int = matrix.main()
    return ended


@pytest.mark.parametrize(
    ("code", "output", "row"),
    [
        (0, "5 passed, 1 skipped in 3.20s", "3.12.1     2.13.0     5 passed, 1 skipped"),
        (1, "FAILED tests/test_a.py::test_b\n1 failed, 5 passed in 3.20s", "failed with code 1: 1 failed, 5 passed"),
        (4, "no tests ran in 0.01s", "failed with code 4: no tests ran"),
    ],
)
def test_the_table_tells_how_each_suite_ended(matrix, monkeypatch, capsys, code, output, row):
    assert _table(matrix, monkeypatch, code, output, version="3.12.1") == int(code != 0)
    assert row in capsys.readouterr().out


def test_a_free_threaded_python_passes_if_it_is_refused(matrix, tmp_path):
    free = tmp_path / "python3.14t"
    free.write_text(FREE.format(python=sys.executable))
    free.chmod(0o755)
    assert matrix._refused(str(free)) == "run refused in one sentence, check served"


def test_a_free_threaded_python_that_is_not_refused_is_a_failure(matrix, monkeypatch, capsys):
    served = "examples/residual_net.py:26:5: error[TS101] overwritten"
    assert _table(matrix, monkeypatch, 1, served, version="3.14.0t") == 1
    assert "failed: not refused in one sentence" in capsys.readouterr().out

"""`pytest --torchsan`, as people run it: real pytest in a process of its own, with and without xdist."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = "torchsan.plugins.pytest_plugin"
SRC = Path(__file__).parents[2] / "src"

TESTS = """
import pytest
import torch


def overwrite():
    x = torch.ones(3, requires_grad=True)
    h = torch.exp(x)
    h += 1
    return h


def test_right():
    x = torch.ones(3, requires_grad=True)
    (x + 1).sum().backward()
    assert x.grad is not None


def test_loud():
    overwrite().sum().backward()


def test_silent():
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    weight.detach().numpy()[0] = 5.0
    loss.backward()


@pytest.mark.torchsan(ignore=["TS201"])
def test_silent_ignored():
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    weight.detach().numpy()[0] = 5.0
    loss.backward()


def test_expects_the_error():
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        overwrite().sum().backward()


class TestGroup:
    @pytest.mark.parametrize("n", [1, 2])
    def test_fine(self, n):
        torch.ones(n)
"""


def _installed() -> bool:
    points = importlib.metadata.entry_points(group="pytest11")
    return any(point.value == PLUGIN for point in points)


def _pytest(folder: Path, *args: str) -> tuple[str, int]:
    """The output and the exit code of pytest in a folder."""
    load = [] if _installed() else ["-p", PLUGIN]
    environment = {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "120"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *load, *args]
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout, done.returncode


def _outcomes(output: str) -> dict[str, str]:
    rows = re.findall(r"^(FAILED|PASSED|ERROR) [^:]+::(\S+)", output, re.M)
    return {name: outcome for outcome, name in rows}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


WATCHED = {
    "test_right": "PASSED",
    "test_loud": "FAILED",
    "test_silent": "FAILED",
    "test_silent_ignored": "PASSED",
    "test_expects_the_error": "PASSED",
    "TestGroup::test_fine[1]": "PASSED",
    "TestGroup::test_fine[2]": "PASSED",
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_findings_fail_with_their_report(project: Path, workers: list[str]) -> None:
    output, code = _pytest(project, "-rA", "--torchsan", "tests", *workers)
    assert _outcomes(output) == WATCHED
    assert code == 1
    assert "error[TS101]" in output
    assert "[TS201]" in output
    assert "weight.detach().numpy()[0] = 5.0" in output


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_warn_lets_tests_pass(project: Path, workers: list[str]) -> None:
    output, _ = _pytest(project, "-rA", "--torchsan=warn", *workers)
    assert _outcomes(output) == {**WATCHED, "test_silent": "PASSED"}
    assert "TorchsanWarning" in output
    assert "[TS201]" in output


@pytest.mark.slow
def test_the_configuration_asks_and_ignores(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\ntorchsan = fail\ntorchsan_ignore = TS201\n")
    output, _ = _pytest(project, "-rA")
    assert _outcomes(output) == {**WATCHED, "test_silent": "PASSED"}


def test_unasked_it_costs_nothing(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    ours = {name for name in sys.modules if name.startswith('torchsan')}\n"
        "    assert ours <= {'torchsan', 'torchsan.version', 'torchsan.plugins', "
        "'torchsan.plugins.pytest_plugin'}\n"
        "    assert 'torch' not in sys.modules\n"
    )
    output, code = _pytest(project)
    assert code == 0, output


def test_collection_imports_no_torch(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(
        "import sys\n\nEARLY = 'torch' in sys.modules\n\ndef test_it():\n    assert not EARLY\n"
    )
    output, code = _pytest(project, "--torchsan")
    assert code == 0, output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--torchsan=loudly"], "--torchsan is fail or warn, not 'loudly'"),
        (["--torchsan", "absent"], "file or directory not found: absent"),
    ],
)
def test_wrong_use_is_told(project: Path, args: list[str], said: str) -> None:
    output, code = _pytest(project, *args)
    assert code == 4
    assert said in output
    assert "Traceback" not in output


def test_conftest_of_the_folder_is_found_after_the_bare_option(project: Path) -> None:
    (project / "tests" / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--early', action='store_true')\n"
    )
    (project / "tests" / "test_it.py").write_text("def test_it(pytestconfig):\n    assert pytestconfig.option.early\n")
    output, code = _pytest(project, "--torchsan", "tests", "--early")
    assert code == 0, output


VERIFY = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


def test_branch(torchsan_verify):
    torchsan_verify(Net(), (torch.ones(3),), methods=["jit.trace"], budget=3600)


def test_straight(torchsan_verify):
    report = torchsan_verify(torch.nn.ReLU(), (torch.ones(3),), methods=["jit.trace"], budget=3600)
    assert report.captures
"""


@pytest.mark.slow
def test_captures_are_verified(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(VERIFY)
    output, _ = _pytest(project, "-rA")
    assert _outcomes(output) == {"test_branch": "FAILED", "test_straight": "PASSED"}
    assert "TS301" in output
    assert "jit.trace unfaithful" in output

"""The files through which others use this repository: the GitHub Action and the pre-commit hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchsan.commands import VERBS

yaml = pytest.importorskip("yaml", reason="needs PyYAML")
ROOT = Path(__file__).parents[1]


def _action() -> dict[str, Any]:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return action


def _shim(folder: Path) -> None:
    """A `torchsan` and a `python` on the path, as on a runner where it is installed."""
    shim = folder / "torchsan"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torchsan "$@"\n')
    shim.chmod(0o755)


def _run_action(folder: Path, command: str, sarif: str = "") -> subprocess.CompletedProcess[str]:
    """The last step of the action, as the runner executes it."""
    step = _action()["runs"]["steps"][-1]
    _shim(folder)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TORCHSAN_COMMAND": command,
        "TORCHSAN_SARIF": sarif,
    }
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(bash, cwd=folder, env=environment, text=True, capture_output=True)


def test_the_action_is_a_composite_action_with_the_inputs_it_uses() -> None:
    action = _action()
    assert action["runs"]["using"] == "composite"
    assert all({"name", "shell", "run"} <= set(step) for step in action["runs"]["steps"])
    used = str([step.get("env") for step in action["runs"]["steps"]])
    assert {name for name in action["inputs"] if f"inputs.{name} " in used} == set(action["inputs"])
    assert not any("${{" in step["run"] for step in action["runs"]["steps"])


@pytest.mark.slow
def test_the_action_annotates_writes_sarif_and_keeps_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nx = torch.ones(3, requires_grad=True)\nh = torch.exp(x)\nh += 1\nh.sum().backward()\n"
    )
    done = _run_action(tmp_path, "run train.py", "out.sarif")
    assert done.returncode == 1, done.stderr
    assert "::error file=train.py,line=4," in done.stdout
    assert '"ruleId": "TS101"' in (tmp_path / "out.sarif").read_text()


def test_the_action_passes_words_not_shell(tmp_path: Path) -> None:
    done = _run_action(tmp_path, "explain $(touch pwned) ; touch pwned")
    assert done.returncode == 2
    assert not (tmp_path / "pwned").exists()


def test_the_hooks_name_verbs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        assert {"id", "name", "description", "entry", "language", "types_or"} == set(hook)
        assert hook["entry"].split()[0] == "torchsan"
    assert {hook["entry"].split()[1] for hook in hooks} <= set(VERBS)

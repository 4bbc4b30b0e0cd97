"""`torchsan fix` as people call it: fresh interpreters, helpers in other files, exit codes, files on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """\
import sys
from helper import shifted
import torch

layer = torch.nn.Linear(3, 3)
for _ in range(int(sys.argv[1])):
    shifted(layer(torch.randn(2, 3))).sum().backward()
open("log.txt", "a").write("ran\\n")
print("done")
"""
HELPER = """\
import torch


def shifted(h):
    h = torch.tanh(h)
    h += 1.0  # moved up
    return h
"""


def fix(folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchsan", "fix", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_bytes(HELPER.replace("\n", "\r\n").encode())
    return tmp_path


@pytest.mark.slow
def test_a_helper_in_another_file_is_mended_and_applied_once(project):
    shown = fix(project, "--sandbox", "train.py", "2")
    assert shown.returncode == 1
    assert "fix (verified: runs, and all 4 gradients of 2 backward passes equal the reference)" in shown.stdout
    assert "+    h = h + 1.0  # moved up" in shown.stdout
    assert "1 of 1 mended in 3 runs" in shown.stdout
    assert "h += 1.0" in (project / "helper.py").read_text()
    assert sorted(os.listdir(project)) == ["helper.py", "train.py"]

    written = fix(project, "--sandbox", "--apply", "--format", "json", "train.py", "2")
    assert written.returncode == 0
    assert json.loads(written.stdout)["findings"][0]["fixes"][0]["applicability"] == "verified"
    wanted = HELPER.replace("h += 1.0", "h = h + 1.0").replace("\n", "\r\n").encode()
    assert (project / "helper.py").read_bytes() == wanted

    again = fix(project, "--sandbox", "--apply", "train.py", "2")
    assert again.returncode == 0
    assert "nothing to fix" in again.stdout
    assert (project / "helper.py").read_bytes() == wanted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "there is no file missing.py"),
        ([], "name a script"),
        (["--steps", "0", "train.py"], "must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(project, arguments, words):
    done = fix(project, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_program_that_fails_for_reasons_of_its_own(project):
    done = fix(project, "train.py")
    assert done.returncode == 2
    assert "does not run here" in done.stderr
    assert "IndexError" in done.stderr
    assert "Traceback" not in done.stderr


MODEL = """\
import torch
import torch.nn.functional as F


class Upscaled(torch.nn.Module):
    def forward(self, x):
        height, width = int(x.shape[-2] * 2), int(x.shape[-1] * 2)
        return F.interpolate(x, size=(height, width))


def make():
    return Upscaled(), (torch.randn(1, 1, 4, 4),)
"""


@pytest.mark.slow
def test_a_capture_is_mended_from_its_factory(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    done = fix(tmp_path, "--apply", "model.py:make")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TS304" in done.stdout
    assert "captures agree with the model on every variant tried" in done.stdout
    assert "height, width = x.shape[-2] * 2, x.shape[-1] * 2" in path.read_text()

"""`torchsan fix` as people call it: fresh interpreters, helpers in other files, exit codes, files on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

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
    assert "fix (verified: runs; 2 losses, 4 gradients, 2 parameters" in shown.stdout
    assert "over 2 backward passes equal the run in which saved values are kept" in shown.stdout
    assert "+    h = h + 1.0  # moved up" in shown.stdout
    assert "1 of 1 mended in 6 runs (5 of them forks)" in shown.stdout
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


FAULTY = """\
import torch
w = torch.ones(3, requires_grad=True)
h = w.exp()
h += 1
h.sum().backward()
"""


@pytest.mark.slow
def test_apply_may_follow_the_script_and_its_own_exit_code_is_no_failure(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import sys\n" + FAULTY + "sys.exit(len(sys.argv) + 1)\n")
    done = fix(tmp_path, "train.py", "--apply", "value")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "h = h + 1" in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("import torch\nn = int(input())\n", [], "it reads its standard input, which is empty here"),
        ("import os, torch\nos.remove('input.txt')\n" + FAULTY, [], "cannot be run again and again"),
        ("import time, torch\ntime.sleep(600)\n", ["--timeout", "4"], "did not end within 4 seconds"),
        (
            "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()\n",
            [],
            "the following arguments are required: --data",
        ),
    ],
)
def test_a_program_that_cannot_be_run_again_is_one_sentence(tmp_path, source, options, words):
    (tmp_path / "input.txt").write_text("1")
    (tmp_path / "train.py").write_text(source)
    done = fix(tmp_path, *options, "--apply", "train.py")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "train.py").read_text() == source


@pytest.mark.slow
def test_interrupting_leaves_the_sources_untouched(tmp_path):
    source = FAULTY + "open('reached', 'w').close()\n"
    waiting = source.replace("h.sum()", "open('begun', 'w').close(); import time; time.sleep(3600)\nh.sum()")
    path = tmp_path / "train.py"
    path.write_text(waiting)
    command = [sys.executable, "-m", "torchsan", "fix", "--apply", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "begun").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert told.strip() == "torchsan: interrupted; nothing was written"
    assert path.read_text() == waiting
    assert sorted(os.listdir(tmp_path)) == ["begun", "train.py"]

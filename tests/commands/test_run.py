"""`torchsan run` from outside: a program must not notice, and the report must be right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = """
import sys
import torch

print("argv", sys.argv[1:])
h = torch.exp(torch.nn.Linear(2, 2)(torch.ones(1, 2)))
h += 1
print("before")
h.sum().backward()
print("never")
"""


def torchsan(*args: object, cwd: Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "torchsan", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, **kwargs)


def python(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "ignore", *map(str, args)], capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(BROKEN)
    return tmp_path


def test_report_then_traceback_and_the_programs_own_status(broken):
    done = torchsan("run", "train.py", "--epochs", "3", cwd=broken)
    assert done.returncode == python("train.py", cwd=broken).returncode == 1
    assert done.stdout == "argv ['--epochs', '3']\nbefore\n"
    report, _, traceback = done.stderr.partition("Traceback (most recent call last):")
    assert "error[TS101]: `h` was overwritten after `exp` saved it" in report
    assert "--> train.py:7:1" in report
    assert f'File "{broken / "train.py"}", line 9, in <module>' in traceback
    assert "observe" not in traceback
    assert "modified by an inplace operation" in traceback


def test_json_is_the_contract(broken):
    done = torchsan("run", "--format", "json", "--output", "report.json", "train.py", cwd=broken)
    assert done.returncode == 1
    assert "TS101" not in done.stderr
    data = json.loads((broken / "report.json").read_text())
    assert data["schema"] == "torchsan/1"
    assert set(data) == {"schema", "tool", "command", "findings", "captures", "summary"}
    (finding,) = data["findings"]
    assert set(finding) == {"code", "name", "level", "certainty", "message", "spans", "notes", "count", "fixes"}
    spans = {span["role"]: span for span in finding["spans"]}
    assert (spans["saved"]["line"], spans["mutated"]["line"], spans["needed"]["line"]) == (6, 7, 9)
    assert (spans["saved"]["column"], spans["saved"]["end_column"]) == (5, 55)
    assert spans["mutated"]["primary"]


def test_concise(broken):
    done = torchsan("run", "--format", "concise", "train.py", cwd=broken)
    assert done.stderr.startswith("train.py:7:1: error[TS101] `h` was overwritten")


def test_module(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def spoil(t):\n    t += 1\n")
    (package / "train.py").write_text(
        "import sys, torch\nfrom pkg.helper import spoil\nfrom . import helper\nassert __name__ == '__main__'\n"
        "h = torch.exp(torch.ones(2, requires_grad=True))\nspoil(h)\nprint(sys.argv[1:], __package__)\n"
        "h.sum().backward()\n"
    )
    done = torchsan("run", "--format", "concise", "-m", "pkg.train", "--flag", "x", cwd=tmp_path)
    assert done.stdout == "['--flag', 'x'] pkg\n"
    assert done.stderr.startswith("pkg/helper.py:2:5: error[TS101] `t` was overwritten")


SILENT = (
    "import torch\nh = torch.exp(torch.ones(2, requires_grad=True))\nh.data.mul_(2)\nh.sum().backward()\nprint('end')\n"
)


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 1)])
def test_strict(tmp_path, options, status):
    (tmp_path / "silent.py").write_text(SILENT)
    done = torchsan("run", *options, "silent.py", cwd=tmp_path)
    assert done.returncode == status
    assert done.stdout == "end\n"
    assert "TS201" in done.stderr


def test_fail_fast_stops_at_the_first_finding(tmp_path):
    (tmp_path / "silent.py").write_text(SILENT)
    done = torchsan("run", "--fail-fast", "silent.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "TS201" in done.stderr


def test_steps_stops_after_so_many_backwards(tmp_path):
    (tmp_path / "loop.py").write_text(
        "import torch\nw = torch.ones(2, requires_grad=True)\nfor i in range(10):\n    print(i)\n    (w * 2).sum().backward()\n"
    )
    done = torchsan("run", "--steps", 3, "loop.py", cwd=tmp_path)
    assert done.stdout == "0\n1\n2\n"
    assert done.returncode == 0


def test_at_write_reports_before_backward(tmp_path):
    (tmp_path / "w.py").write_text(
        "import torch, sys\nh = torch.exp(torch.ones(2, requires_grad=True))\nh += 1\nsys.exit(4)\n"
    )
    done = torchsan("run", "--at-write", "--format", "concise", "w.py", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr.startswith("w.py:3:1: error[TS101]")


@pytest.mark.parametrize("ending", ["sys.exit(3)", "sys.exit('bye')", "sys.exit()", "raise ValueError('x')", "pass"])
def test_exit_status_and_output_are_pythons(tmp_path, ending):
    (tmp_path / "p.py").write_text(f"import sys, atexit\natexit.register(print, 'atexit')\nprint('out')\n{ending}\n")
    ours, theirs = torchsan("run", "p.py", cwd=tmp_path), python("p.py", cwd=tmp_path)
    assert ours.returncode == theirs.returncode
    assert ours.stdout == theirs.stdout
    assert ours.stderr == theirs.stderr


def test_a_program_without_torch_never_loads_it(tmp_path):
    (tmp_path / "p.py").write_text(
        "import sys\nassert 'torch' not in sys.modules\nprint(__name__, __file__, sys.path[0])\n"
    )
    ours, theirs = torchsan("run", "p.py", cwd=tmp_path), python("p.py", cwd=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, theirs.stdout, "")


def test_spawned_processes_find_the_main_module(tmp_path):
    (tmp_path / "p.py").write_text(
        "import multiprocessing as mp\n\ndef work(n):\n    return n * 2\n\n"
        "if __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(work, [1, 2]))\n"
    )
    done = torchsan("run", "p.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[2, 4]\n")


def test_interrupt_reports_and_dies_of_the_signal(tmp_path):
    (tmp_path / "p.py").write_text(
        SILENT.replace("print('end')\n", "print('ready', flush=True)\nimport time\ntime.sleep(3600)\n")
    )
    command = [sys.executable, "-m", "torchsan", "run", "p.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert "TS201" in errors
    assert "KeyboardInterrupt" in errors


BAD_INPUT = {
    "missing script": (["nothing.py"], "there is no file nothing.py"),
    "folder": (["folder"], "folder is a folder"),
    "syntax error": (["syntax.py"], "syntax.py:2: syntax error"),
    "binary": (["binary.py"], "binary.py is not Python source"),
    "undecodable": (["latin.py"], "latin.py"),
    "no script": ([], "name a script"),
    "unknown option": (["--nonsense", "good.py"], "--nonsense"),
    "bad steps": (["--steps", "0", "good.py"], "at least 1"),
    "missing module": (["-m", "no.such.module"], "-m no.such.module"),
    "missing output folder": (["--output", "no/such/report.json", "good.py"], "there is no folder"),
    "output is a folder": (["--output", "folder", "good.py"], "is a folder"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_one_sentence(tmp_path, arguments, words):
    (tmp_path / "folder").mkdir()
    (tmp_path / "syntax.py").write_text("x = 1\nif x\n")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\0\0\1")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "good.py").write_text("print('ran')\n")
    done = torchsan("run", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.startswith("torchsan: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_script(tmp_path):
    (tmp_path / "secret.py").write_text("pass")
    (tmp_path / "secret.py").chmod(0)
    done = torchsan("run", "secret.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_unknown_verb(tmp_path):
    done = torchsan("ruin", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no verb 'ruin'" in done.stderr


def test_explain(tmp_path):
    done = torchsan("explain", "TS101", cwd=tmp_path)
    assert done.returncode == 0
    assert "saved-value-overwritten" in done.stdout
    assert "Bad:" in done.stdout
    missing = torchsan("explain", "TS999", cwd=tmp_path)
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr


def test_static_verbs_do_not_import_torch(tmp_path):
    code = (
        "import sys; from torchsan.__main__ import main; main(['explain', 'TS101']); assert 'torch' not in sys.modules"
    )
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

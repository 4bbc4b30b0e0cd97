"""Other systems, simulated: no torch, no global lock, narrow consoles, backslashes."""

from __future__ import annotations

import io
import ntpath
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from torchsan import __main__ as command_line
from torchsan.console import fitting
from torchsan.model import source

SRC = Path(__file__).parents[1] / "src"
BROKEN = "import torch\nx = torch.ones(2, requires_grad=True)\nh = x.exp()\nh += 1\nh.sum().backward()\n"


def _without_torch(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A Python that sees the standard library and torchsan, and no installed package."""
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); from torchsan.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-S", "-c", code, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={"XDG_CACHE_HOME": str(cwd)})


def test_check_and_explain_need_no_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BROKEN)
    found = _without_torch("check", "--format", "concise", "train.py", cwd=tmp_path)
    assert found.returncode == 1, found.stderr
    assert found.stdout.startswith("train.py:4:1: ")
    assert "TS101" in found.stdout


@pytest.mark.parametrize("verb", ["verify", "fix"])
def test_a_verb_that_needs_torch_says_so_in_one_sentence(tmp_path: Path, verb: str) -> None:
    (tmp_path / "train.py").write_text(BROKEN)
    done = _without_torch(verb, "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "needs torch, which is not installed here" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_run_leaves_a_program_without_torch_alone(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    done = _without_torch("run", "plain.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_a_free_threaded_python_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    (tmp_path / "plain.py").write_text("print('never run')\n")
    assert command_line.main(["run", str(tmp_path / "plain.py")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "free-threaded" in told.err
    assert len(told.err.splitlines()) == 1
    assert command_line.main(["explain", "TS101"]) == 0


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "cp437", "ascii"])
def test_every_console_can_take_what_we_print(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    text = "version 0 → 1 … `größe` 模型 ≤ 2×"
    shown = fitting(text, stream)
    shown.encode(encoding)
    assert "version 0" in shown
    assert shown == text or "->" in shown


def test_a_report_reaches_a_cp1252_console(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(re.sub(r"\bh\b", "größe", BROKEN), encoding="utf-8")
    command = [sys.executable, "-m", "torchsan", "check", "train.py"]
    environment = {"PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(SRC), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
    assert done.returncode == 1, done.stderr
    assert "größe" in done.stdout.decode("cp1252")


def test_paths_in_reports_have_forward_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = types.SimpleNamespace(path=ntpath, sep="\\")
    monkeypatch.setattr(source, "os", windows)
    monkeypatch.setattr(source, "START", "C:\\Users\\ann\\project")
    assert source.shown_path("C:\\Users\\ann\\project\\src\\train.py") == "src/train.py"
    assert source.shown_path("c:\\users\\Ann\\project\\train.py") == "train.py"
    assert source.shown_path("D:\\data\\train.py") == "D:/data/train.py"
    assert source.shown_path("<ipython-input-3>") == "<ipython-input-3>"
    assert ntpath.normpath(source.real_path("src/train.py")) == "C:\\Users\\ann\\project\\src\\train.py"


def test_a_trial_is_ended_with_its_children_where_there_are_no_process_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchsan.fix import labs

    ordered: list[list[str]] = []
    monkeypatch.delattr(labs.os, "killpg")
    monkeypatch.setattr(labs.subprocess, "run", lambda command, **_: ordered.append(command))
    labs._end_with_children(1234)
    assert ordered == [["taskkill", "/F", "/T", "/PID", "1234"]]


def test_an_interrupt_is_told_as_windows_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchsan.commands import run

    monkeypatch.setattr(run, "os", types.SimpleNamespace(name="nt"))
    assert run._die_of_interrupt() == 0xC000013A


def test_trials_need_no_fork(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on Windows, where every trial is a fresh interpreter."""
    import os

    from torchsan.fix.engine import Engine
    from torchsan.fix.labs import Subprocess

    monkeypatch.delattr(os, "fork")
    script = tmp_path / "train.py"
    script.write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    lab = Subprocess(str(script), None, [], None, 600, False)
    outcome = Engine(lab).run()
    assert lab.forks == 0
    assert [mend.finding.code for mend in outcome.mends] == ["TS101"]
    assert outcome.clean

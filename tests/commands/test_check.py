"""`torchsan check` as people call it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from torchsan.__main__ import main

BROKEN = """\
import torch
from torch import nn

net = nn.Linear(2, 2)
h = torch.sigmoid(net(torch.ones(1, 2)))
h += 1.0
h.sum().backward()
"""
CLEAN = BROKEN.replace("h += 1.0", "h = h + 1.0")
LINE = 6


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchsan.model.source.START", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "clean.py").write_text(CLEAN)
    return tmp_path


def codes(capsys, *words: str) -> tuple[int, list[str]]:
    status = main(["check", "--format", "json", *words])
    report = json.loads(capsys.readouterr().out)
    return status, [f["code"] for f in report["findings"]]


def test_finds_and_exits_with_one(project, capsys):
    assert main(["check", "--format", "concise"]) == 1
    assert capsys.readouterr().out.startswith(f"broken.py:{LINE}:1: error[TS101] `h` was overwritten")


def test_clean_files_exit_with_zero(project, capsys):
    assert main(["check", "clean.py"]) == 0
    assert capsys.readouterr().out == ""


def test_full_report_shows_the_source(project, capsys):
    main(["check", "broken.py"])
    out = capsys.readouterr().out
    assert "h += 1.0" in out
    assert "saved here: `sigmoid` needs its result" in out


def test_select_and_ignore(project, capsys):
    assert codes(capsys, "--select", "TS2") == (0, [])
    assert codes(capsys, "--select", "saved-value-overwritten") == (1, ["TS101"])
    assert codes(capsys, "--ignore", "TS101") == (0, [])


def test_configuration(project, capsys):
    (project / "pyproject.toml").write_text('[tool.torchsan]\nignore = ["TS101"]\n')
    assert codes(capsys) == (0, [])
    (project / "pyproject.toml").write_text('[tool.torchsan]\nexclude = ["broken*"]\n')
    assert codes(capsys) == (0, [])


@pytest.mark.parametrize(
    "words",
    [
        ["no_such_file.py"],
        ["--select", "TS999"],
        ["--jobs", "0"],
        ["--update-baseline"],
        ["--changed-only", "no-such-revision"],
        ["-", "broken.py"],
        ["--output", "no/such/folder/report.txt"],
    ],
)
def test_bad_input_is_one_sentence(project, capsys, words):
    assert main(["check", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_bad_configuration_is_one_sentence(project, capsys):
    (project / "pyproject.toml").write_text("[tool.torchsan]\nselect = 3\n")
    assert main(["check"]) == 2
    assert "tool.torchsan.select" in capsys.readouterr().err


def test_unreadable_files_are_one_line_each_and_do_not_stop_the_rest(project, capsys):
    (project / "syntax.py").write_text("import torch\ndef f(:\n")
    (project / "other.py").write_text("def f(:\n")
    (project / "bytes.py").write_bytes(b"import torch\nx = '\xff\xfe'\n")
    (project / "null.py").write_bytes(b"import torch\n\0\n")
    assert main(["check", "--format", "concise"]) == 1
    said = capsys.readouterr()
    assert "broken.py" in said.out
    assert said.err.count("\n") == 4
    assert "syntax.py: line 2: " in said.err
    assert main(["check", "syntax.py", "clean.py"]) == 2


def test_suppression_needs_its_code_and_unused_ones_are_told(project, capsys):
    (project / "broken.py").write_text(BROKEN.replace("+= 1.0", "+= 1.0  # torchsan: ignore[TS101] shown only"))
    assert codes(capsys) == (0, [])
    (project / "broken.py").write_text(BROKEN.replace("+= 1.0", "+= 1.0  # torchsan: ignore[TS105] wrong code"))
    assert main(["check"]) == 1
    assert f"broken.py:{LINE}: nothing to ignore here: TS105" in capsys.readouterr().out


def test_baseline_is_made_hides_and_only_shrinks(project, capsys):
    words = ["check", "--baseline", "known.json", "--format", "concise"]
    assert main(words) == 0
    assert len(json.loads((project / "known.json").read_text())["findings"]) == 1
    (project / "broken.py").write_text("# moved down\n" + BROKEN)
    assert main(words) == 0
    (project / "again.py").write_text(BROKEN)
    assert main([*words, "--update-baseline"]) == 1
    assert len(json.loads((project / "known.json").read_text())["findings"]) == 1
    (project / "broken.py").write_text(CLEAN)
    (project / "again.py").unlink()
    assert main([*words, "--update-baseline"]) == 0
    assert json.loads((project / "known.json").read_text())["findings"] == []
    capsys.readouterr()
    (project / "known.json").write_text("{}")
    assert main(words) == 2


def test_cache_gives_the_same_answers(project, capsys):
    first = codes(capsys, "--cache-dir", "kept")
    assert list((project / "kept").iterdir())
    assert codes(capsys, "--cache-dir", "kept") == first == (1, ["TS101"])
    (project / "broken.py").write_text(CLEAN)
    assert codes(capsys, "--cache-dir", "kept") == (0, [])


def test_cache_goes_by_content(project, capsys, monkeypatch):
    assert codes(capsys, "--cache-dir", "kept") == (1, ["TS101"])
    monkeypatch.setattr("torchsan.check.runner.analyse", lambda *_, **__: pytest.fail("it was checked before"))
    (project / "broken.py").touch()
    assert codes(capsys, "--cache-dir", "kept") == (1, ["TS101"])


@pytest.mark.parametrize("form", ["full", "concise", "json", "sarif", "github", "junit"])
def test_every_format_and_output_file(project, capsys, form):
    assert main(["check", "--format", form, "--output", "said.txt", "--no-cache"]) == 1
    assert "TS101" in (project / "said.txt").read_text()
    assert "TS101" not in capsys.readouterr().out


def test_a_broken_cache_is_no_cache(project, capsys):
    (project / "kept").write_text("a file where the folder should be")
    assert codes(capsys, "--cache-dir", "kept") == (1, ["TS101"])


def test_several_processes_give_the_same_answers(project, capsys):
    for number in range(70):
        (project / f"copy_{number}.py").write_text(BROKEN if number % 10 == 0 else CLEAN)
    assert codes(capsys, "--jobs", "2", "--no-cache") == codes(capsys, "--jobs", "1", "--no-cache")


def test_statistics(project, capsys):
    main(["check", "--statistics", "--format", "concise"])
    assert "1  TS101  saved-value-overwritten" in capsys.readouterr().out


def test_notebooks(project, capsys):
    cells = [
        {"cell_type": "markdown", "source": ["# words"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n", "from torch import nn\n"]},
        {"cell_type": "code", "source": BROKEN.splitlines(keepends=True)[3:]},
    ]
    (project / "book.ipynb").write_text(json.dumps({"cells": cells}))
    assert main(["check", "book.ipynb", "--format", "concise"]) == 1
    assert capsys.readouterr().out.startswith("book.ipynb:cell 2:3:1: error[TS101]")
    main(["check", "book.ipynb"])
    assert "h += 1.0" in capsys.readouterr().out
    (project / "book.ipynb").write_text("not json")
    assert main(["check", "book.ipynb"]) == 2


def test_a_cell_shows_its_last_value(project):
    cell = {"cell_type": "code", "source": ["import torch\n", "x = torch.randn(3)\n", "x.clamp(0)\n", "{}"]}
    for name, last, found in (("shown", "", 0), ("within", "def f(y):\n    y.clamp(0)\n    return y\n", 1)):
        cells = [{**cell, "source": [*cell["source"][:3], last]}]
        (project / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))
        assert main(["check", f"{name}.ipynb"]) == found


def test_standard_input(project):
    words = [sys.executable, "-m", "torchsan", "check", "-", "--format", "concise", "--stdin-name", "typed.py"]
    done = subprocess.run(words, input=BROKEN, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"typed.py:{LINE}:1: error[TS101]")


def test_changed_only(project, capsys):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    assert codes(capsys, "--changed-only", "HEAD") == (0, [])
    (project / "new.py").write_text(BROKEN)
    (project / "clean.py").write_text(CLEAN + "\n")
    assert codes(capsys, "--changed-only", "HEAD") == (1, ["TS101"])


def test_works_without_torch(project):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchsan.__main__ import main\n"
        "print(main(['check', '--format', 'concise']), main(['explain', 'exp']), main(['explain', 'TS101']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.rstrip().endswith("1 0 0"), done.stderr


def test_explain_an_op(capsys):
    assert main(["explain", "exp"]) == 0
    assert "needs its result" in capsys.readouterr().out
    assert main(["explain", "expp"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_only_the_checked_path_is_imported():
    code = "import sys; import torchsan.commands.check; print('torch' in sys.modules, 'libcst' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_fix_writes_safe_edits_and_reports_what_is_left(project, capsys):
    assert main(["check", "--fix", "broken.py"]) == 0
    assert (project / "broken.py").read_text() == CLEAN
    assert "broken.py: 1 safe edit written" in capsys.readouterr().out


def test_unsafe_edits_are_written_only_when_asked_for(project, capsys):
    unsure = BROKEN.replace("torch.sigmoid(", "nn.Sigmoid()(").replace("h += 1.0", "nn.ReLU(inplace=True)(h)")
    (project / "unsure.py").write_text(unsure)
    assert main(["check", "--fix", "unsure.py"]) == 1
    assert (project / "unsure.py").read_text() == unsure
    assert main(["check", "--unsafe-fixes", "unsure.py"]) == 0
    assert (project / "unsure.py").read_text() == unsure.replace("inplace=True", "inplace=False")
    assert "unsure.py: 1 unsafe edit written" in capsys.readouterr().out


def test_diff_shows_the_edits_and_writes_nothing(project, capsys):
    assert main(["check", "--diff", "broken.py", "clean.py"]) == 1
    assert "+h = h + 1.0" in capsys.readouterr().out
    assert (project / "broken.py").read_text() == BROKEN
    assert main(["check", "--diff", "clean.py"]) == 0


def test_standard_input_cannot_be_mended(project, capsys):
    assert main(["check", "--fix", "-"]) == 2
    assert "standard input cannot be mended" in capsys.readouterr().err


def test_findings_carry_their_edit(project, capsys):
    main(["check", "--format", "json", "broken.py"])
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    [fix] = finding["fixes"]
    assert fix["applicability"] == "safe"
    assert "+h = h + 1.0" in fix["diff"]

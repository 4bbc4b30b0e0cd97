"""Files as they come: nothing in them may end in a traceback of ours."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchsan.__main__ import main
from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import Source, source_of
from torchsan.rules import all_rules

BROKEN = (
    "import torch\nfrom torch import nn\n\nnet = nn.Linear(2, 2)\nh = torch.sigmoid(net(torch.ones(1, 2)))\n"
    "if True:\n    h += 1.0\nh.sum().backward()\n"
)
LINE = 7
SAME = {
    "bom": b"\xef\xbb\xbf" + BROKEN.encode(),
    "crlf": BROKEN.replace("\n", "\r\n").encode(),
    "tabs": BROKEN.replace("    ", "\t").encode(),
    "form feed": BROKEN.replace("if True", "\fif True").encode(),
    "latin-1": b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + BROKEN.encode(),
    "no line break at the end": BROKEN.rstrip("\n").encode(),
    "unspaced": BROKEN.replace(" += ", "+=").encode(),
}


@pytest.mark.parametrize("name", SAME)
def test_the_form_of_the_text_does_not_matter(name):
    (found,) = analyse(source_of("a.py", SAME[name])).findings
    assert (found.code, found.primary.line) == ("TS101", LINE + 2 * (name == "latin-1"))


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"#", b"\\", b"\t", b"'", b"import torch", b"\f"])
def test_hardly_anything(data):
    assert analyse(source_of("a.py", data)).findings == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = nn.relu(1)\nx += " + "(" * 3000 + "1" + ")" * 3000 + "\n",
        "import torch\nfrom torch import nn\nx = nn.Linear(1, 1)\nx.weight += 1\ny = " + "-" * 30_000 + "1\n",
        "import torch\nfrom torch import nn\ny = nn.Linear(1, 1).weight\ny += 1" + " + 1" * 20_000 + "\n",
        "import torch\nfrom torch import nn\ny = nn.Linear(1, 1).weight\ny += 1\n" + "if y:\n" * 90 + "\n",
        "import torch\nfrom torch import nn\ndef f(x):\n    x += 1\n    return f(f(x))\nf(nn.Linear(1, 1).weight)\n",
        "import torch\nfrom torch import nn\nx = []\nx.append(x)\nx += x\nnn.Sequential(*x)(torch.ones(1)).backward()\n",
        "import torch\nfrom torch import nn\nx = 10 ** 10 ** 10 ** 10\nx += 'a' * 10 ** 12\nnn.x.backward()\n",
    ],
)
def test_deep_huge_and_circular(text):
    analyse(Source("a.py", text))


def test_folders_that_turn_in_circles_or_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "ok.py").write_text("x = 1\n")
    os.symlink(tmp_path, tmp_path / "again")
    os.symlink(tmp_path / "nowhere.py", tmp_path / "dangling.py")
    (tmp_path / "folder.py").mkdir()
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    try:
        assert main(["check"]) in (0, 2)
    finally:
        locked.chmod(0o700)
    assert "Traceback" not in capsys.readouterr().err


def test_a_folder_that_cannot_be_listed_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "locked").mkdir()
    (tmp_path / "ok.py").write_text("x = 1\n")
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["check", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("locked: is a folder that cannot be listed\n")


WORDS = [
    "x",
    "y",
    "self",
    "nn.Linear(2,2)",
    "torch.sigmoid(x)",
    "+=",
    "-=",
    "*=",
    "=",
    "==",
    "[0]",
    "(x)",
    ".",
    ",",
    ":",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "**",
    "*",
    "lambda",
    "for",
    "in",
    "if",
    "else",
    "def",
    "class",
    "return",
    "with",
    "torch.no_grad()",
    "yield",
    "await",
    "not",
    "is",
    "None",
    "\n",
    "\n\t",
    "\n\t\t",
    "x.mul_(2)",
    ".data",
    "backward()",
    "import",
    "torch",
    "'a'",
    '"b"',
    '"""',
    "#",
    "f'{x}'",
    ":=",
    "->",
    "@",
    "~",
    "1",
    "0.5",
    "...",
    "del",
    "global",
    "try:",
    "except:",
    "finally:",
    "raise",
    "pass",
    "async",
    "match",
    "case",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_a_soup_of_words(words):
    analyse(Source("a.py", "import torch\nfrom torch import nn\n" + " ".join(words) + "\nx.backward()\n"))


def _programs() -> list[str]:
    ours = [path.read_text() for path in sorted((Path(__file__).parents[2] / "examples").glob("**/*.py"))]
    return ours + [text for rule in all_rules().values() for text in (rule.bad, rule.good)]


@pytest.mark.parametrize("seed", range(60))
def test_programs_with_lines_missing_doubled_or_moved(seed, monkeypatch):
    monkeypatch.setenv("TORCHSAN_DEBUG", "1")
    chance = random.Random(seed)
    lines = chance.choice(_programs()).splitlines()
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines[at] = lines[at].lstrip()
            case _:
                lines[at] = lines[at].replace(chance.choice(["(", ")", "=", "x", " "]), chance.choice(["", ",", "y."]))
        lines = lines or ["pass"]
    analyse(Source("a.py", "\n".join(lines) + "\n"), possible=True)

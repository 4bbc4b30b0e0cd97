"""A tree of files: imports are followed, and what a result hangs on is looked at again when it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchsan.check.runner import check_files

LAYERS = """
import torch
from torch import nn


class Act(nn.Module):
    def forward(self, x):
        return {result}
"""
NET = """
import torch
from torch import nn
from .layers import Act


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = Act()

    def forward(self, x):
        h = self.act(self.fc(x))
        h += 1
        return h
"""


def tree(folder: Path, **files: str) -> None:
    for name, text in {"__init__": "", **files}.items():
        (folder / "pkg").mkdir(exist_ok=True)
        (folder / "pkg" / f"{name}.py").write_text(text.lstrip("\n"))


def found(folder: Path, name: str, cache: Path | None = None) -> list[tuple[str, int]]:
    results = check_files([str(folder / "pkg" / f"{name}.py")], jobs=1, cache_folder=cache)
    return [(f.code, f.primary.line) for r in results for f in r.findings if f.certainty != "possible"]


@pytest.fixture(autouse=True)
def _forget_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchsan.check.reading import project

    project._project.cache_clear()
    project._roots.cache_clear()
    project.files_below.cache_clear()
    project.texts_below.cache_clear()
    project.tree_stamp.cache_clear()


def test_a_layer_of_another_file_keeps_its_result(tmp_path: Path) -> None:
    tree(tmp_path, layers=LAYERS.format(result="torch.sigmoid(x)"), net=NET)
    assert found(tmp_path, "net") == [("TS101", 14)]


def test_a_layer_of_another_file_that_keeps_nothing(tmp_path: Path) -> None:
    tree(tmp_path, layers=LAYERS.format(result="x * 2"), net=NET)
    assert found(tmp_path, "net") == []


def test_a_result_is_not_kept_longer_than_what_it_hangs_on(tmp_path: Path) -> None:
    from torchsan.check.reading import project

    tree(tmp_path, layers=LAYERS.format(result="torch.sigmoid(x)"), net=NET)
    assert found(tmp_path, "net", tmp_path / "cache") == [("TS101", 14)]
    project._project.cache_clear()
    (tmp_path / "pkg" / "layers.py").write_text(LAYERS.format(result="x * 2 + 1"))
    assert found(tmp_path, "net", tmp_path / "cache") == []


WRITES = """
import torch


def scaled(boxes: torch.Tensor, size: float) -> torch.Tensor:
    boxes[:, 2] *= size
    return boxes + 1
"""


@pytest.mark.parametrize(
    ("caller", "harm"),
    [
        ("def use(b):\n    return scaled(b, 2.0), b.sum()\n", True),
        ("def use(b):\n    out = scaled(b, 2.0)\n    return out + b\n", True),
        ("def use(a):\n    b = a.clone()\n    out = scaled(b, 2.0)\n    return out + b\n", False),
        ("def use(a):\n    return scaled(a * 2, 2.0)\n", False),
        ("def use(a):\n    a = a + 1\n    a = scaled(a, 2.0)\n    return a\n", False),
    ],
)
def test_who_looks_at_the_argument_afterwards(tmp_path: Path, caller: str, harm: bool) -> None:
    tree(tmp_path, boxes=WRITES, use="from .boxes import scaled\n\n\n" + caller)
    assert found(tmp_path, "boxes") == ([("TS204", 5)] if harm else [])


DESCRIBED = '''    """Scale the height.

    Args:
        boxes: four numbers a row
    """
'''


def test_an_argument_of_a_public_function_that_nobody_calls_here(tmp_path: Path) -> None:
    tree(tmp_path, boxes=WRITES)
    assert found(tmp_path, "boxes") == []


def test_what_a_function_describes_to_callers_elsewhere(tmp_path: Path) -> None:
    tree(tmp_path, boxes=WRITES.replace("    boxes[", DESCRIBED + "    boxes["))
    assert found(tmp_path, "boxes") == [("TS204", 10)]


def test_state_that_an_object_hands_over(tmp_path: Path) -> None:
    tree(
        tmp_path,
        boxes=WRITES.replace("    boxes[", DESCRIBED + "    boxes["),
        use="from .boxes import scaled\n\n\nclass A:\n    def go(self):\n        return scaled(self.kept, 2.0)\n",
    )
    assert found(tmp_path, "boxes") == []


def test_another_shape_of_a_view_is_nobodys_harm(tmp_path: Path) -> None:
    parts = (
        "import torch\n\n\ndef parts(boxes: torch.Tensor, axis: int):\n" + DESCRIBED + "    {first}\n"
        "    return tuple(part.squeeze_(axis) for part in {whole}), boxes\n"
    )
    tree(tmp_path, boxes=parts.format(first="pass", whole="torch.split(boxes, 1, dim=axis)"))
    assert found(tmp_path, "boxes") == []
    tree(tmp_path, boxes=parts.format(first="boxes.unsqueeze_(axis)", whole="torch.split(boxes + 1, 1, dim=axis)"))
    assert found(tmp_path, "boxes") == [("TS204", 10)]


def test_memory_that_is_there_to_be_filled(tmp_path: Path) -> None:
    text = (
        "import torch\n\n\ndef average(p: torch.Tensor, seen: torch.Tensor = None):\n    if seen is None:\n"
        "        seen = torch.zeros_like(p)\n    seen.mul_(0.9).add_(p)\n    return seen\n"
    )
    tree(tmp_path, boxes=text)
    assert found(tmp_path, "boxes") == []
    tree(tmp_path, boxes=text.replace("torch.zeros_like(p)", "p * 2").replace("return seen", "return seen + 1"))
    assert found(tmp_path, "boxes") == [("TS204", 7)]


@pytest.mark.parametrize(
    "change",
    [
        ("def scaled(", "def scaled_("),
        ("size: float)", "size: float, inplace: bool = True)"),
        ("Scale the height.", "Scale the height in place."),
        ("    return boxes + 1\n", ""),
        ("def scaled(", "def _scaled("),
        ("    boxes[", "    boxes = boxes.clone()\n    boxes["),
    ],
)
def test_who_says_so_may(tmp_path: Path, change: tuple[str, str]) -> None:
    described = WRITES.replace("    boxes[", DESCRIBED + "    boxes[")
    tree(tmp_path, boxes=described.replace(*change))
    assert found(tmp_path, "boxes") == []

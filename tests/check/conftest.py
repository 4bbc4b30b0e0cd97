"""Check a program given as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from torchsan.check.analyse import Result, analyse
from torchsan.check.choosing.files import Source
from torchsan.model import Finding

Check = Callable[..., list[Finding]]


@pytest.fixture
def result() -> Callable[[str], Result]:
    return lambda text: analyse(Source("program.py", textwrap.dedent(text).lstrip("\n")))


@pytest.fixture
def check() -> Check:
    """Findings that are shown by default; all with `possible=True`."""

    def run(text: str, *, possible: bool = False) -> list[Finding]:
        source = Source("program.py", textwrap.dedent(text).lstrip("\n"))
        found = analyse(source, possible=possible).findings
        return [f for f in found if possible or f.certainty != "possible"]

    return run


HEAD = """
import copy
import torch
from torch import nn, optim
import torch.nn.functional as F
"""


@pytest.fixture
def found_at_its_line(check: Check) -> Callable[[str], None]:
    """The line that ends with `# <- CODE` is reported under that code."""

    def run(program: str) -> None:
        text = HEAD.lstrip("\n") + textwrap.dedent(program)
        line, code = next((n, t.partition("# <- ")[2]) for n, t in enumerate(text.splitlines(), 1) if "# <- " in t)
        assert (code, line) in {(f.code, f.primary.line) for f in check(text)}

    return run

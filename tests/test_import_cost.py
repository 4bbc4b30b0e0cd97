"""What is loaded when nothing has been asked for yet: next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
HEAVY = {"torch", "numpy", "rich", "libcst", "executing", "pygls", "IPython", "lightning", "transformers"}


def _loaded(statement: str) -> set[str]:
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    ["import torchsan", "import torchsan.plugins.pytest_plugin", "import torchsan.report, torchsan.commands.output"],
)
def test_nothing_heavy_is_imported(statement: str) -> None:
    assert _loaded(statement) & HEAVY == set()


def test_torchsan_itself_loads_two_modules() -> None:
    ours = {name for name in _loaded("import torchsan") if name.startswith("torchsan")}
    assert ours == {"torchsan", "torchsan.version"}

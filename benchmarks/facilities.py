"""What each facility says about the broken programs of tests/observe/test_hazards.py.

For each program: does it raise, is the line that saved named, is the line that wrote named, and is a program that
raises nothing reported at all. Printed as a table of counts.

    python benchmarks/facilities.py
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

import torchsan

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.observe.test_hazards import LOUD, SETUP, SILENT


def marked(source: str, mark: str) -> set[int]:
    return {n for n, line in enumerate(source.splitlines(), 1) if line.rstrip().endswith(f"# {mark}")}


def run(path: Path) -> None:
    code = compile(path.read_text(), str(path), "exec")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, {"__name__": "__main__", "__file__": str(path)})


def plain(path: Path) -> tuple[bool, str]:
    return _said(path, contextlib.nullcontext())


def anomaly(path: Path) -> tuple[bool, str]:
    return _said(path, torch.autograd.set_detect_anomaly(True, check_nan=False))


def _said(path: Path, context: contextlib.AbstractContextManager[object]) -> tuple[bool, str]:
    """Whether the program raised, and everything that was printed or raised beside the last line."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with context:
                run(path)
        except RuntimeError as error:
            frames = "".join(traceback.format_tb(error.__traceback__))
            return True, frames + "".join(str(w.message) for w in said)
    return False, "".join(str(w.message) for w in said)


def names(text: str, path: Path, lines: set[int]) -> bool:
    return any(f'"{path}", line {n},' in text for n in lines)


def count(programs: dict[str, str], folder: Path, facility: Callable[[Path], tuple[bool, str]]) -> list[int]:
    totals = [0, 0, 0]
    for number, body in enumerate(programs.values()):
        path = folder / f"{facility.__name__}{number}.py"
        source = (SETUP + textwrap.dedent(body)).lstrip("\n")
        path.write_text(source)
        raised, text = facility(path)
        totals[0] += raised
        totals[1] += names(text, path, marked(source, "saved"))
        totals[2] += names(text, path, marked(source, "written"))
    return totals


def watch(path: Path) -> tuple[bool, str]:
    block = torchsan.watch()
    raised = False
    with contextlib.suppress(RuntimeError):
        raised = True
        with block:
            spec_run(path)
        raised = False
    spans = [span for finding in block.report.alarms for span in finding.spans if span.role in ("saved", "mutated")]
    return raised or bool(block.report.alarms), "".join(f'"{span.path}", line {span.line},' for span in spans)


def spec_run(path: Path) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    with contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def main() -> None:
    print(f"{'':16}{'programs':>10}{'reported':>10}{'saving line':>13}{'writing line':>14}")
    with tempfile.TemporaryDirectory() as folder:
        for kind, programs in (("loud", LOUD), ("silent", SILENT)):
            for facility in (plain, anomaly, watch):
                totals = count(programs, Path(folder), facility)
                print(f"{kind:7}{facility.__name__:9}{len(programs):>10}{totals[0]:>10}{totals[1]:>13}{totals[2]:>14}")


if __name__ == "__main__":
    main()

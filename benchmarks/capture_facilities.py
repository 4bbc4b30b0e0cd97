"""What each facility says about the models of tests/verify/programs.py whose capture is not the model.

Each has one known line that a capture freezes. For each facility: is anything reported at all (a warning, an error, a
report), is that line named, and is an input shown on which capture and model differ.

    python benchmarks/capture_facilities.py
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import linecache
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import torchsan

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.verify import programs

Said = tuple[bool, str, bool]


def models() -> Iterator[tuple[Any, tuple[Any, ...], int]]:
    """Models with a marked line, their inputs, and that line."""
    for _, factory in inspect.getmembers(programs, inspect.isfunction):
        if factory.__module__ != programs.__name__ or inspect.signature(factory).parameters:
            continue
        with contextlib.suppress(Exception):
            model, args, *rest = factory()
            lines, first = inspect.getsourcelines(type(model))
            marked = [n for n, line in enumerate(lines, first) if "# <- TS3" in line]
            if len(marked) == 1 and not rest:
                yield model, args, marked[0]


def listen(work: Callable[[], str]) -> tuple[bool, str]:
    """Whether it raised, and all that was warned, printed, raised or returned."""
    log = io.StringIO()
    with warnings.catch_warnings(record=True) as said, contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
        warnings.simplefilter("always")
        try:
            returned, raised = work(), False
        except Exception as error:
            returned, raised = "".join(traceback.format_exception(error)), True
    kept = [f"{w.filename}:{w.lineno} {w.message}" for w in said if "deprecated" not in str(w.message)]
    return raised or any("TracerWarning" in str(w.category) for w in said), "\n".join([*kept, returned, log.getvalue()])


def check_trace(model: Any, args: tuple[Any, ...]) -> Said:
    reported, text = listen(lambda: str(torch.jit.trace(model, args, check_trace=True).graph)[:0])
    return reported, text, False  # it runs the example again, never another input


def export(model: Any, args: tuple[Any, ...]) -> Said:
    reported, text = listen(lambda: str(torch.export.export(model, args, strict=False))[:0])
    return reported, text, False


def draft_export(model: Any, args: tuple[Any, ...]) -> Said:
    def work() -> str:
        found = torch.export.draft_export(model, args)._report
        return "" if found is None or found.successful() else str(found)

    raised, text = listen(work)
    return raised or "specializ" in text.lower() or "data dependent" in text.lower(), text, False


def verify(model: Any, args: tuple[Any, ...]) -> Said:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = torchsan.verify(model, args, methods=["jit.trace"], budget=60)
    places = " ".join(f"{span.path}:{span.line}" for finding in report.findings for span in finding.spans)
    return bool(report.findings), places, bool(report.captures[0].counterexample)


def main() -> None:
    facilities = {"check_trace": check_trace, "export": export, "draft_export": draft_export, "verify": verify}
    logging.disable()  # draft_export says everything twice: in its report, which is read, and in the log
    subjects = list(models())
    print(f"{len(subjects)} models      reported  line named  input shown")
    for name, facility in facilities.items():
        counts = [0, 0, 0]
        for model, args, line in subjects:
            torch.manual_seed(0)
            reported, text, shown = facility(copy.deepcopy(model), copy.deepcopy(args))
            named = re.search(rf"programs\.py(:|,? ?\"?,? line(no)? ){line}\b", text) is not None
            # draft_export shows some lines by their text alone.
            named = named or linecache.getline(programs.__file__, line).strip() in text
            counts = [counts[0] + reported, counts[1] + (reported and named), counts[2] + (reported and shown)]
        print(f"{name:<14} {counts[0]:>8}  {counts[1]:>10}  {counts[2]:>11}")


if __name__ == "__main__":
    main()

"""Reports to render, written by hand so that renderers are tested apart from the rest."""

from __future__ import annotations

from pathlib import Path

from torchsan.model import Capture, Finding, Fix, Report, Span

PROGRAM = """\
import torch

x = torch.ones(3, requires_grad=True)
h = torch.exp(x)
h += 1
h.sum().backward()
"""

DIFF = """\
--- a/{path}
+++ b/{path}
@@ -4,3 +4,3 @@
 h = torch.exp(x)
-h += 1
+h = h + 1
 h.sum().backward()
"""


def overwritten(path: str, **more: object) -> Finding:
    """The classic: saved on line 4, overwritten on line 5, needed on line 6."""
    values: dict[str, object] = {
        "code": "TS101",
        "name": "saved-value-overwritten",
        "level": "error",
        "certainty": "proved",
        "message": "`h` was overwritten after `exp` saved it for its gradient",
        "spans": (
            Span(path, 4, 5, 4, 17, "saved", "saved here: exp needs its result (version 0)"),
            Span(path, 5, 1, 5, 7, "mutated", "overwritten here (version 0 → 1)", primary=True),
            Span(path, 6, 1, 6, 19, "needed", "needed here"),
        ),
        "why": "d exp(x)/dx = exp(x), computed from the saved result",
        "notes": ("100% <of> the gradient & more",),
        "fixes": (
            Fix(
                "h = h + 1",
                "verified",
                DIFF.format(path=path),
                4_000_000,
                {"summary": "runs, and all 62 gradients equal the reference"},
            ),
            Fix("write to new memory"),
        ),
        "count": 3,
    }
    return Finding(**{**values, **more})  # type: ignore[arg-type]


def sample(folder: Path) -> Report:
    """Two findings on a file that exists, one only possible, and two captures."""
    path = folder / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    report = Report(command=["torchsan", "run", "train it.py"], torch="2.13.0")
    report.add(overwritten(str(path)))
    report.add(
        overwritten(
            str(path),
            code="TS204",
            name="callers-input-written",
            level="warning",
            spans=(Span(str(path), 5, 1, 6, 3, "mutated", "written: here, there", primary=True),),
            fixes=(),
        )
    )
    report.add(
        overwritten(
            str(path),
            code="TS301",
            certainty="possible",
            level="note",
            spans=(Span(str(path), 3, 1, 3, 1, "cause", "", primary=True),),
        )
    )
    report.captures = [
        Capture("torch.jit.trace", "unfaithful", 12, "x = ones(1, 3)", 0, None, {"x": "differs"}),
        Capture("torch.export", "faithful", 12, artifact="model.pt2"),
        Capture("torch.onnx", "failed", 0, reason="onnx is not installed"),
    ]
    report.notes = ["1 file was skipped"]
    return report

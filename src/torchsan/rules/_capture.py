"""What the 3xx rules have in common: how a fault of captures is told."""

from __future__ import annotations

from collections.abc import Sequence

from torchsan.model import Fix, Level, Place, Span
from torchsan.model.capture_events import Fault, Verdict

CALLS = {
    "jit.trace": "torch.jit.trace",
    "jit.script": "torch.jit.script",
    "export": "torch.export",
    "export-strict": "torch.export (strict)",
    "export-static": "torch.export (fixed sizes)",
    "onnx": "torch.onnx.export",
    "compile": "torch.compile",
}


ONCE = "did so once, while it was captured, and will not for values that are loaded later"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _clause(verdicts: Sequence[Verdict], one: str, many: str) -> str:
    names = [CALLS.get(v.method, v.method) for v in verdicts]
    return f"{listed(names)} {one if len(names) == 1 else many}" if names else ""


def outcome(fault: Fault) -> str:
    """Who is wrong, who refuses, who fails."""
    by = {what: [v for v in fault.verdicts if v.what == what] for what in ("wrong", "raises", "fails", "once")}
    parts = [
        _clause(by["wrong"], "gives other results than the model", "give other results than the model"),
        _clause(by["raises"], "refuses what the model accepts", "refuse what the model accepts"),
        _clause(by["fails"], "cannot capture it", "cannot capture it"),
        _clause(by["once"], ONCE, ONCE),
    ]
    return "; ".join(part for part in parts if part)


def level(fault: Fault) -> Level:
    """Wrong numbers without a word are errors; a capture that says no is a warning."""
    return "error" if any(v.what == "wrong" for v in fault.verdicts) else "warning"


def notes(fault: Fault) -> tuple[str, ...]:
    found = []
    for verdict in fault.verdicts:
        given = f", {verdict.inputs}" if verdict.inputs else ""
        found.append(f"{CALLS.get(verdict.method, verdict.method)}{given}: {verdict.detail}")
    if fault.works:
        found.append(f"faithful on everything tried: {listed([CALLS.get(m, m) for m in fault.works])}")
    return tuple(found)


def spans(place: Place, label: str, callers: Sequence[Place] = ()) -> list[Span]:
    """The cause, and for a helper the first line outside it that led there."""
    found = [place.span("cause", label, primary=True)]
    outer = next((c for c in callers if (c.path, c.line) != (place.path, place.line)), None)
    if outer is not None:
        found.append(outer.span("origin", "called from here"))
    return found


def help_text(*titles: str) -> tuple[Fix, ...]:
    return tuple(Fix(title) for title in titles)

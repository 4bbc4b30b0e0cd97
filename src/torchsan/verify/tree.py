"""The module tree of a model, with where eager and a capture part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchsan.model import Finding, Place
from torchsan.model.source import shown_path
from torchsan.verify.departure import Step, first_unmatched, steps_of
from torchsan.verify.frames import text_of
from torchsan.verify.hunt import Counterexample, Trial
from torchsan.verify.subject import Subject, quiet
from torchsan.verify.truth import Truth

MOST_MODULES = 500


class Owners:
    """Which module runs, while its hooks last."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.running: list[str] = []
        self.order: dict[str, None] = {}
        for path, module in model.named_modules():
            module.register_forward_pre_hook(self._entering(path))
            module.register_forward_hook(self._leaving, always_call=True)

    def _entering(self, path: str) -> Any:
        def enter(module: Any, args: Any) -> None:
            self.running.append(path)
            self.order.setdefault(path)

        return enter

    def _leaving(self, module: Any, args: Any, output: Any) -> None:
        self.running.pop()

    def now(self) -> str:
        return self.running[-1] if self.running else ""


def with_ancestors(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _chosen(trials: list[Trial]) -> tuple[Trial, Counterexample] | None:
    """A disagreement that tells most: other numbers before a refusal."""
    found = [(t, c) for t in trials if t.captured is not None for c in t.counterexamples.values()]
    return min(found, key=lambda pair: (pair[1].difference.kind == "raises", pair[0].method == "onnx"), default=None)


def module_tree(truth: Truth, trials: list[Trial], findings: list[Finding]) -> list[dict[str, str]]:
    """One row a module, in the order in which they run; nothing when no capture parts from eager."""
    chosen = _chosen(trials)
    if chosen is None:
        return []
    trial, found = chosen
    subject = truth.subject
    model = subject.fresh()
    owners = Owners(model)
    leaves = found.variant.leaves(subject)
    with contextlib.suppress(Exception, SystemExit):
        eager = steps_of(model, subject, leaves, found.variant.seed, True, owners.now)
        parted, detail = _parting(subject, trial, found, leaves, eager)
        if parted is None:
            parted, detail = _of_cause(model, owners, findings), f"{trial.method}: {found.difference.text}"
        return _rows(model, owners, eager, parted, detail)
    return []


def _parting(
    subject: Subject, trial: Trial, found: Counterexample, leaves: list[Any], eager: list[Step]
) -> tuple[tuple[str, int] | None, str]:
    """The module and the step at which they part, as far as operations can tell."""
    captured = trial.captured
    if captured is None or trial.method == "onnx" or found.got.error is not None or found.variant.left_out:
        return None, ""
    with quiet():
        module = captured.fresh()
    other = steps_of(captured.function(module, subject), subject, leaves, found.variant.seed, False)
    index = first_unmatched(eager, other)
    if index is None:
        return None, ""
    step = eager[index]
    where = f" at {step.place}: {text_of(step.place)}" if step.place else ""
    return (step.owner, index), f"{trial.method} parts from eager here{where}"


def _of_cause(model: torch.nn.Module, owners: Owners, findings: list[Finding]) -> tuple[str, int] | None:
    """The module whose forward holds the line of the first finding."""
    modules = dict(model.named_modules())
    for finding in findings:
        place = Place(finding.primary.path, finding.primary.line)
        for path in owners.order:
            code = getattr(type(modules[path]).forward, "__code__", None)
            if code is None or shown_path(code.co_filename) != place.path:
                continue
            lines = [line for _, _, line in code.co_lines() if line]
            if lines and min(lines) <= place.line <= max(lines):
                return path, -1
    return None


def _rows(
    model: torch.nn.Module, owners: Owners, eager: list[Step], parted: tuple[str, int] | None, detail: str
) -> list[dict[str, str]]:
    modules = dict(model.named_modules())
    differs = set(with_ancestors(parted[0])) if parted else {""}
    before = {step.owner for step in eager[: parted[1]]} if parted and parted[1] >= 0 else set()
    after = {path for step in eager[parted[1] :] for path in with_ancestors(step.owner)} if parted else set()
    rows = []
    for path in [*owners.order, *(p for p in modules if p not in owners.order)][:MOST_MODULES]:
        inside = {owner for owner in before if owner == path or owner.startswith(f"{path}.")}
        verdict, note = "", "" if path in owners.order else "not reached"
        if path in differs:
            verdict, note = "differs", detail if path == (parted[0] if parted else "") else ""
        elif inside and path not in after:
            verdict = "same"
        elif path in owners.order and parted and parted[1] >= 0:
            note = "runs after they part"
        rows.append({"path": path, "type": type(modules[path]).__name__, "verdict": verdict, "detail": note})
    return rows

"""From trials to findings: every disagreement and failure gets its cause, every cause one finding."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import torch

from torchsan.model import Finding
from torchsan.model.capture_events import (
    Cause,
    Column,
    Departure,
    Fault,
    LiveChange,
    ReadOut,
    TensorWrite,
    Verdict,
    What,
)
from torchsan.rules import all_rules
from torchsan.verify.causes import CauseFinder
from torchsan.verify.code import inputs_text
from torchsan.verify.compare import difference, flatten
from torchsan.verify.failures import explain, failing_places, failure_cause
from torchsan.verify.hunt import Counterexample, Trial, shrink
from torchsan.verify.methods import with_old_values
from torchsan.verify.state import attribute_uses, tensor_write
from torchsan.verify.timing import now
from torchsan.verify.truth import Truth

ORDER = ("example", "values", "arguments", "calls", "seed", "size", "mode", "dtype", "effects")


@dataclass
class Judgement:
    """Findings, and which of them tells of which method."""

    findings: list[Finding] = field(default_factory=list)
    by_method: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def _key(cause: Cause) -> tuple[object, ...]:
    place = getattr(cause, "place", None) or (getattr(cause, "writes", ()) or getattr(cause, "reads", ()) or (None,))[0]
    where = (place.path, place.line) if place else ()
    return (type(cause).__name__, where, getattr(cause, "name", ""), getattr(cause, "target", ""))


class Judge:
    def __init__(self, truth: Truth, deadline: float) -> None:
        self.truth = truth
        self.deadline = deadline
        self.finder = CauseFinder(truth)
        self.faults: dict[tuple[object, ...], Fault] = {}
        self.methods: dict[tuple[object, ...], list[str]] = {}
        self.known: dict[tuple[object, ...], Cause] = {}
        self.reasons: dict[str, str] = {}

    def note(self, cause: Cause, column: Column, dimension: str, verdict: Verdict) -> None:
        key = _key(cause)
        fault = self.faults.get(key)
        if fault is None:
            fault = Fault(cause, column, dimension, ())
        elif fault.column == "capture" and column != "capture":
            # A disagreement tells more than a failure: it has both values.
            fault = replace(fault, cause=cause, column=column, dimension=dimension)
        if verdict.method not in [v.method for v in fault.verdicts]:
            fault = replace(fault, verdicts=(*fault.verdicts, verdict))
        self.faults[key] = fault
        self.methods.setdefault(key, []).append(verdict.method)

    def trial(self, trial: Trial) -> None:
        if trial.skipped:
            return
        if trial.captured is None:
            self._failure(trial)
        ranked = sorted(trial.counterexamples.items(), key=lambda item: _rank(item[0], item[1]))
        for column, found in ranked:
            trial.counterexamples[column] = self._disagreement(trial, column, found)
        self._settled(trial)
        self._changes(trial)

    def _failure(self, trial: Trial) -> None:
        assert trial.error is not None
        places = failing_places(trial.method, trial.error)
        reason = explain(trial.method, trial.error)
        self.reasons[trial.method] = f"{places[0]}: {reason}" if places else reason
        cause = None
        with contextlib.suppress(Exception, SystemExit):
            cause = failure_cause(self.finder, trial.method, trial.error, places)
        if isinstance(cause, ReadOut) and (cause.place.path, cause.place.line) != (places[0].path, places[0].line):
            self.reasons[trial.method] += f"; it is read out at {cause.place}"
        if cause is not None:
            self.note(cause, "capture", "", Verdict(trial.method, "fails", reason))

    def _disagreement(self, trial: Trial, column: str, found: Counterexample) -> Counterexample:
        assert trial.captured is not None
        known = (
            found.variant.label,
            column == "effects",
            found.difference.where if column == "effects" else "",
        )
        if now() < self.deadline:
            found = shrink(found, trial, self.truth, self.deadline)
        if known not in self.known:
            self.known[known] = self.finder.find(found, trial.captured)
        cause = self.known[known]
        if isinstance(cause, TensorWrite) and cause.place is None:
            cause = self.finder.nowhere() if column != "effects" else replace(cause, place=self.finder.nowhere().place)
        if isinstance(cause, Departure) and any(self._is_unexplained(key, trial.method) for key in self.faults):
            # One disagreement without a known cause is told; that there are more in other columns, the table says.
            return found
        kind: Column = "effects" if column == "effects" else _column(found)
        what: What = "raises" if found.difference.kind == "raises" else "wrong"
        self.note(
            cause,
            kind,
            found.variant.dimension,
            Verdict(trial.method, what, _detail(found), inputs_text(self.truth.subject, found.variant)),
        )
        return found

    def _is_unexplained(self, key: tuple[object, ...], method: str) -> bool:
        return isinstance(self.faults[key].cause, Departure) and method in self.methods[key]

    def _follows_from_a_write(self, key: tuple[object, ...]) -> bool:
        """Whether values part without a known cause where the capture is known to miss a write to the model's state,
        which is what the next line reads."""
        if not isinstance(self.faults[key].cause, Departure):
            return False
        missed = [k for k, f in self.faults.items() if f.column == "effects" and isinstance(f.cause, TensorWrite)]
        return all(any(method in self.methods[k] for k in missed) for method in self.methods[key])

    def _settled(self, trial: Trial) -> None:
        """What forward writes once and for all: right in the capture as it is, missing once other values are loaded."""
        subject, captured = self.truth.subject, trial.captured
        if captured is None or not captured.settled or "example" in trial.counterexamples:
            return
        loaded = with_old_values(captured, subject).run(subject, subject.plan())
        found = difference(self.truth.example, loaded, captured.tolerance, only_tensors=captured.only_tensors)
        if found is None:
            return
        for name in captured.settled[:2]:
            cause = tensor_write(subject, "state", name, subject.plan())
            if cause.place is not None:
                detail = f"with the values of before the capture loaded again, {found.text}"
                self.note(cause, "effects", "", Verdict(trial.method, "once", detail))

    def _changes(self, trial: Trial) -> None:
        subject = self.truth.subject
        for change in trial.changes[:2]:
            if change.target in dict(subject.model.named_parameters()) or change.target in dict(
                subject.model.named_buffers()
            ):
                place = tensor_write(subject, "state", change.target, subject.plan()).place
            else:
                uses = attribute_uses(subject, [change.target], subject.plan())
                place = next((p for use in uses for p in (*use.writes, *use.reads)), None)
            where = place or self.finder.nowhere().place
            cause: LiveChange = replace(change, place=where, by_program=subject.capture is not None)
            self.note(cause, "capture", "", Verdict(trial.method, "wrong", change.change))

    def judgement(self, trials: list[Trial]) -> Judgement:
        works = tuple(t.method for t in trials if t.outcome == "faithful")
        result = Judgement(reasons=dict(self.reasons))
        for key, fault in self.faults.items():
            if self._follows_from_a_write(key):
                continue
            finding = judged(replace(fault, works=works))
            if finding is None:
                continue
            result.findings.append(finding)
            if not isinstance(fault.cause, LiveChange):
                for method in self.methods[key]:
                    result.by_method.setdefault(method, len(result.findings) - 1)
        return result


def judged(fault: Fault) -> Finding | None:
    """The finding of the first rule that knows the fault."""
    for rule in all_rules().values():
        if rule.family == "3" and rule.judge is not None:
            finding = rule.judge(fault, None)
            if finding is not None:
                return finding
    return None


def _column(found: Counterexample) -> Column:
    kind = found.variant.kind
    return "values" if kind == "example" or kind == "arguments" else kind


def _detail(found: Counterexample) -> str:
    tensors = [leaf for _, leaf in flatten(found.want.outputs) if isinstance(leaf, torch.Tensor)]
    empty = tensors and not any(tensor.numel() for tensor in tensors)
    return found.difference.text + "; the model's own result is empty there" * bool(empty)


def _rank(column: str, found: Counterexample) -> int:
    kind = "effects" if column == "effects" else found.variant.kind
    return ORDER.index(kind)

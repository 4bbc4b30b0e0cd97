"""Run captures on every variant, keep what disagrees with eager, and make it small."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from torchsan.model.capture_events import LiveChange
from torchsan.verify.compare import Difference, difference, is_finite, made_tensors
from torchsan.verify.compiled import CompiledFacts
from torchsan.verify.departure import both_steps, frozen_dtype
from torchsan.verify.distribution import Uncomparable, distribution_difference, draws
from torchsan.verify.limits import breaking_sizes
from torchsan.verify.methods import CAPTURE_LIMIT, Captured, capture
from torchsan.verify.noise import is_noise
from torchsan.verify.sides import Sides, other_sides
from torchsan.verify.sizes import TOGETHER
from torchsan.verify.subject import Outcome, attributes_of, identical, tensors_of
from torchsan.verify.timing import OutOfTime, now, ran_out
from torchsan.verify.truth import Truth
from torchsan.verify.variants import Variant

MOST_NOT_FINITE = 8


@dataclass(frozen=True)
class Counterexample:
    variant: Variant
    difference: Difference
    want: Outcome
    got: Outcome
    in_distribution: bool = False


@dataclass
class Trial:
    """One method: how the capture went, and by column the input that shows it wrong."""

    method: str
    captured: Captured | None = None
    error: BaseException | None = None
    counterexamples: dict[str, Counterexample] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    capture_seconds: float = 0.0
    check_seconds: float = 0.0
    changes: list[LiveChange] = field(default_factory=list)
    skipped: str = ""
    untried: dict[str, None] = field(default_factory=dict)
    fixed_arguments: bool = False
    kept_mode: bool = False
    draws_otherwise: bool | None = None
    in_distribution: set[str] = field(default_factory=set)
    # Results that are numbers in eager.
    made_tensors: dict[str, None] = field(default_factory=dict)
    sides: Sides = field(default_factory=Sides)
    # What only compiled models have; a wrong gradient counts as much as a wrong value.
    compiled: CompiledFacts | None = None

    @property
    def outcome(self) -> str:
        if self.counterexamples or (self.compiled is not None and self.compiled.departs):
            return "unfaithful"
        if self.out_of_time or (self.captured is not None and self.untried and not self.skipped):
            # What was not compared does not agree.
            return "unfinished"
        if self.captured is None or not self.tried or self.skipped:
            return "failed"
        return "faithful"

    @property
    def out_of_time(self) -> bool:
        """Whether capturing alone took longer than it may."""
        return ran_out(self.error)


def export_example(truth: Truth) -> list[object]:
    """Sizes of 1 are always fixed by export: where such a dimension can vary, capture with size 2."""
    subject = truth.subject
    leaves = list(subject.leaves)
    for dimension in truth.sizes.dimensions:
        if dimension.size == 1:
            for leaf, dim in dimension.axes:
                size = dimension.accepted[0]
                leaves[leaf] = leaves[leaf].detach().index_select(dim, torch.arange(size) % 1)
    if truth.subject.run(subject.plan(leaves)).error is not None:
        return list(subject.leaves)
    return leaves


def tensor_changes(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> list[LiveChange]:
    found = []
    for name, value in before.items():
        now = after.get(name)
        if now is not None and not identical(now, value):
            found.append(LiveChange(name, "has other values than before", None))
    return found


def attribute_changes(before: dict[str, str], after: dict[str, str]) -> list[LiveChange]:
    found = []
    for name, text in after.items():
        if text == before.get(name):
            continue
        if "FakeTensor" in text or "FunctionalTensor" in text or "Proxy" in text:
            found.append(LiveChange(name, "now holds a fake tensor of the exporter", None))
        elif text.startswith("Tensor") and before.get(name, "").startswith("Tensor"):
            found.append(LiveChange(name, "has other values than before", None))
    return found


def try_method(method: str, truth: Truth, deadline: float) -> Trial:
    trial = Trial(method)
    subject = truth.subject
    model = subject.fresh()
    tensors, attributes = tensors_of(model), attributes_of(model)
    started = time.perf_counter()
    left = max(5.0, min(CAPTURE_LIMIT, deadline - now()))
    try:
        trial.captured = capture(method, subject, model, export_example(truth), truth.sizes.varying(), left)
    except (Exception, SystemExit) as error:
        trial.error = error
    finally:
        subject.reset()
    trial.capture_seconds = time.perf_counter() - started
    if method != "jit.trace" or trial.captured is None:
        trial.changes = tensor_changes(tensors, tensors_of(model))
    elif trial.captured.live_changes:
        trial.changes = [LiveChange(name, "has other values than before", None) for name in trial.captured.live_changes]
    trial.changes += attribute_changes(attributes, attributes_of(model))
    if trial.captured is not None:
        check(trial, truth, deadline)
        _check_not_finite(trial, truth, deadline)
        _check_refused(trial, truth, deadline)
        _check_other_sides(trial, truth, deadline)
    return trial


def _check_not_finite(trial: Trial, truth: Truth, deadline: float) -> None:
    """Sizes at which eager's result is no number: a capture that has one there goes by the sizes of its example."""
    for variant, want in truth.not_finite[:MOST_NOT_FINITE]:
        if now() >= deadline:
            return
        if _says_nothing_new(trial, variant) or _is_part_of_the_capture(trial, truth, variant):
            continue
        with contextlib.suppress(OutOfTime, Uncomparable):
            found = _confirmed(trial, truth, variant, want)
            if found is not None and found.difference.kind == "values" and is_finite(found.got):
                trial.counterexamples[variant.column] = found


def _check_refused(trial: Trial, truth: Truth, deadline: float) -> None:
    """Sizes that the capture refuses by its own account, where eager accepts them."""
    assert trial.captured is not None
    for breaking in breaking_sizes(truth.subject, trial.captured, truth.sizes.dimensions):
        for variant in breaking:
            if variant.column in trial.counterexamples or trial.skipped:
                break
            if now() >= deadline:
                trial.untried.setdefault(variant.column)
                return
            if truth.add(variant):
                check(trial, truth, deadline, truth.pairs[-1:])
                break


def _check_other_sides(trial: Trial, truth: Truth, deadline: float) -> None:
    """Branches that the tracer warned of and that no input has taken the other way."""
    assert trial.captured is not None
    if trial.skipped or not trial.captured.warnings:
        return
    trial.sides = other_sides(truth, trial.captured, deadline)
    truth.pairs += trial.sides.found
    check(trial, truth, deadline, trial.sides.found)


def check(trial: Trial, truth: Truth, deadline: float, pairs: Sequence[tuple[Variant, Outcome]] | None = None) -> None:
    """Every variant that eager accepts, or `pairs`; a column known to be wrong is not tried further."""
    started = time.perf_counter()
    assert trial.captured is not None
    trial.untried.update(truth.untried)
    for variant, want in truth.pairs if pairs is None else pairs:
        if _says_nothing_new(trial, variant) or _is_part_of_the_capture(trial, truth, variant):
            continue
        if now() >= deadline:
            trial.untried.setdefault(variant.column)
            continue
        try:
            found = _confirmed(trial, truth, variant, want)
        except OutOfTime:
            # No answer is no agreement.
            trial.untried.setdefault(variant.column)
            continue
        except Uncomparable:
            trial.skipped = "it draws random numbers of its own, and how many results there are depends on them"
            break
        trial.tried[variant.column] = trial.tried.get(variant.column, 0) + 1
        if found is None:
            continue
        column = "effects" if found.difference.is_effect else variant.column
        trial.counterexamples.setdefault(column, found)
    trial.check_seconds += time.perf_counter() - started


def _says_nothing_new(trial: Trial, variant: Variant) -> bool:
    assert trial.captured is not None
    wrong = trial.counterexamples
    if variant.column in wrong or (variant.double and not trial.captured.can_widen):
        return True
    if variant.dimension == TOGETHER and any(found.variant.kind == "size" for found in wrong.values()):
        # One of them is known to be wrong: together they tell nothing new.
        return True
    if variant.needs and (variant.needs in wrong or "calls" in wrong):
        return True
    if variant.needs == TOGETHER and any(found.variant.kind == "size" for found in wrong.values()):
        return True
    # Comparing distributions takes many runs: one input a column is enough, one difference is, too.
    return variant.column in trial.in_distribution or any(found.in_distribution for found in wrong.values())


def _is_part_of_the_capture(trial: Trial, truth: Truth, variant: Variant) -> bool:
    """What a capture is made for, and said in the table: no reason to call it unfaithful."""
    assert trial.captured is not None
    if variant.left_out and trial.captured.fixes_arguments:
        trial.fixed_arguments = True
        return True
    if variant.only_size_one and trial.captured.dynamic is not None and _is_no_length(truth, variant.dimension):
        # Exporters take a size of 1 for another kind of input; only for batches and lengths is that worth a word.
        return True
    if variant.kind == "mode" and not truth.subject.model.training and trial.captured.fixes_mode:
        # Captured for use: nobody trains a trace.
        trial.kept_mode = True
        return True
    return False


def _is_no_length(truth: Truth, dimension: str) -> bool:
    return truth.sizes.beyond_two(dimension) or truth.sizes.only_broadcasts(dimension)


def _confirmed(trial: Trial, truth: Truth, variant: Variant, want: Outcome) -> Counterexample | None:
    assert trial.captured is not None
    used_again = trial.captured.unspoiled is not None
    found = disagreement(trial, truth, variant, want)
    if found is not None and used_again:
        # An earlier run may be to blame: what counts is a fresh copy.
        trial.captured.unspoiled = None
        found = disagreement(trial, truth, variant, want)
    return found


def draws_otherwise(trial: Trial, truth: Truth) -> bool:
    """Whether a capture draws random numbers, but not those that eager draws with the same random state."""
    if trial.draws_otherwise is None:
        assert trial.captured is not None
        subject = truth.subject
        same, other = (trial.captured.run(subject, subject.plan(seed=subject.seed + step)) for step in (0, 1))
        trial.draws_otherwise = truth.random and draws(truth.example, same) and draws(same, other)
    return trial.draws_otherwise


def disagreement(trial: Trial, truth: Truth, variant: Variant, want: Outcome) -> Counterexample | None:
    captured, subject = trial.captured, truth.subject
    assert captured is not None
    got = captured.run(subject, variant.plan(subject))
    if ran_out(got.error):
        raise OutOfTime(str(got.error))
    found = difference(
        want,
        got,
        captured.tolerance,
        names=subject.names,
        state=captured.state_names(subject),
        only_tensors=captured.only_tensors,
    )
    if found is None:
        for a, b in zip(want.outputs, got.outputs, strict=False):
            trial.made_tensors.update(dict.fromkeys(made_tensors(a, b)))
        return None
    if found.kind == "values" and truth.random and draws_otherwise(trial, truth):
        over_many = distribution_difference(subject, captured, variant)
        trial.in_distribution.add(variant.column)
        return Counterexample(variant, over_many, want, got, in_distribution=True) if over_many else None
    if found.kind == "values" and is_noise(subject, variant, want, got, captured.tolerance, truth.random):
        return None
    if variant.double:
        leaves = variant.leaves(subject)
        if frozen_dtype(*both_steps(subject, captured, leaves, variant.seed, double=True)) is None:
            # Torch's own layers cannot be converted after tracing: no line of the user's to blame.
            return None
    return Counterexample(variant, found, want, got)


def _simpler(truth: Truth, variant: Variant) -> list[Variant]:
    subject = truth.subject
    options = [replace(variant, edits={k: v for k, v in variant.edits.items() if k != drop}) for drop in variant.edits]
    if variant.kind == "values":
        for text in ("torch.zeros_like(x)", "torch.ones_like(x)", "-x"):
            options += [
                replace(variant, edits={index: text}, label=f"{subject.names[index]}: {text}")
                for index in variant.edits
            ]
    options = [option for option in options if option.edits or not variant.edits]
    if variant.kind == "size":
        dimension = next((d for d in truth.sizes.dimensions if d.label == variant.dimension), None)
        if dimension:
            for size in range(2, min(4, dimension.size)):
                smaller = dimension.variant(subject, size)
                if smaller is not None and not dimension.reaches_one(subject, size):
                    options.append(smaller)
        options = [o for o in options if set(o.edits) == set(variant.edits)]
    return options[:8]


def shrink(found: Counterexample, trial: Trial, truth: Truth, deadline: float) -> Counterexample:
    """The smallest input that still shows the same kind of difference in the same column."""
    if found.variant.kind not in ("values", "size") or found.in_distribution:
        return found
    for option in _simpler(truth, found.variant):
        if now() >= deadline:
            break
        want, again = truth.ask(option), None
        with contextlib.suppress(OutOfTime, Uncomparable):
            again = disagreement(trial, truth, option, want) if want is not None else None
        if again is not None and again.difference.kind == found.difference.kind:
            return again
    return found

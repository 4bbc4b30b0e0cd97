"""A cause is tested: eager, made to do the one thing that a capture is suspected of, must do what the capture does."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from torchsan.verify.compare import Tolerance, difference, last_line
from torchsan.verify.frames import raised_places
from torchsan.verify.hunt import Counterexample
from torchsan.verify.methods import Captured
from torchsan.verify.slots import Slot, copied
from torchsan.verify.subject import Outcome, Plan, Subject, run_calls, tensors_of

LOOSE = Tolerance(1e-3, 1e-4)
# "path.py(12): forward" is how TorchScript tells of the Python that it was made of.
_TRACED_LINE = re.compile(r"([^\s()\"]+\.py)\((\d+)\)")
Restore = Callable[[], None]


class Imitation:
    """What the capture did on a counterexample, and eager runs that try to do the same."""

    def __init__(self, subject: Subject, captured: Captured, found: Counterexample) -> None:
        self.subject = subject
        self.captured = captured
        self.found = found
        self.plan = found.variant.plan(subject)

    def is_like(self, outcome: Outcome) -> bool:
        """Whether a tampered run of eager did what the capture did."""
        got = self.found.got
        if got.error is not None or outcome.error is not None:
            return (
                got.error is not None
                and outcome.error is not None
                and len(got.outputs) == len(outcome.outputs)
                and alike_errors(got.error, outcome.error)
            )
        state = self.captured.state_names(self.subject) if self.found.difference.kind == "state" else {}
        names = self.subject.names if self.found.difference.kind == "input" else []
        if len(outcome.outputs) != len(got.outputs):
            return False
        return difference(outcome, got, LOOSE, names=names, state=state, only_tensors=True) is None

    def says_the_same(self, outcome: Outcome) -> bool:
        """Whether a run that raised as the capture did names the same numbers: sizes the other way round are another
        cause."""
        theirs, ours = self.found.got.error, outcome.error
        return theirs is None or ours is None or last_line(theirs) == last_line(ours)

    def fails_at(self, path: str, line: int) -> bool:
        """Whether the capture's own error tells of a line of the program."""
        return (os.path.basename(path), line) in _traced_lines(self.found.got.error)

    @property
    def unpacks_strictly(self) -> bool:
        """Whether the capture refuses a list that is longer than the example's, where Python would go on."""
        return self.captured.method.startswith("jit")

    def without(self, names: list[str], slots: list[tuple[Slot, Any]]) -> bool:
        """Whether eager is like the capture once attributes and globals do not outlive a call."""
        return self.is_like(run_forgetting(self.subject, self.plan, names, slots))

    def with_fixed_draws(self) -> bool:
        """Whether it is once Python and NumPy draw the same random numbers in every call."""

        def again() -> None:
            random.seed(self.subject.seed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(self.subject.seed)

        return self.is_like(run_around(self.subject, self.plan, again))

    def runs_unoptimised(self) -> bool:
        """Whether the capture itself is right once TorchScript leaves out its optimisations."""
        if self.found.got.error is None or not self.captured.method.startswith("jit"):
            return False
        with torch.jit.optimized_execution(False):
            return self.is_right(self.captured)

    def is_right(self, captured: Captured) -> bool:
        """Whether a capture does what eager does."""
        got, only = captured.run(self.subject, self.plan), captured.only_tensors
        return got.error is None and difference(self.found.want, got, LOOSE, only_tensors=only) is None


def run_around(
    subject: Subject,
    plan: Plan,
    before: Callable[[], None] | None = None,
    undo: Callable[[torch.nn.Module], Restore] | None = None,
) -> Outcome:
    """Eager, with something done before every call, or put back after it."""
    model = plan.prepared(subject.fresh())
    restore = undo(model) if undo is not None else None

    def call(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before()
        try:
            return model(*args, **kwargs)
        finally:
            if restore is not None:
                restore()

    outcome = run_calls(call, subject, plan)
    outcome.state = tensors_of(model)
    return outcome


def run_forgetting(subject: Subject, plan: Plan, names: list[str], slots: list[tuple[Slot, Any]]) -> Outcome:
    """Eager, in which attributes and globals do not outlive a call."""
    return run_around(subject, plan, undo=lambda model: _forgetting(model, names, slots))


def _forgetting(model: torch.nn.Module, names: list[str], slots: list[tuple[Slot, Any]]) -> Restore:
    """Names are bound again to what they were bound to; what lies in a tensor's memory stays, as in a trace."""
    kept: list[tuple[dict[str, Any], str, Any]] = []
    modules = dict(model.named_modules())
    for name in names:
        path, _, attribute = name.rpartition(".")
        owner = modules.get(path)
        stores = [getattr(owner, "_buffers", {}), getattr(owner, "_parameters", {}), getattr(owner, "__dict__", {})]
        store = next((s for s in stores if attribute in s), stores[-1])
        kept.append((store, attribute, store.get(attribute, _MISSING)))
    pristine = [value if isinstance(value, torch.Tensor) else copied(value) for _, _, value in kept]

    def restore() -> None:
        for (store, attribute, _), value in zip(kept, pristine, strict=True):
            if value is _MISSING:
                store.pop(attribute, None)
            else:
                store[attribute] = value if isinstance(value, torch.Tensor) else copied(value)
        for slot, value in slots:
            slot.put_back(value)

    return restore


class _Missing:
    def __deepcopy__(self, memo: dict[int, Any]) -> _Missing:
        return self


_MISSING = _Missing()


def alike_errors(capture: BaseException, eager: BaseException) -> bool:
    """The same words but for numbers, or raised on the same line of the program."""
    ours, theirs = (re.sub(r"\d+", "#", last_line(error)) for error in (eager, capture))
    if ours == theirs:
        return True
    places = raised_places(eager)
    return bool(places) and (os.path.basename(places[0].path), places[0].line) in _traced_lines(capture)[-1:]


def _traced_lines(error: BaseException | None) -> list[tuple[str, int]]:
    """The lines of Python that an error of TorchScript tells of: file and number."""
    return [(os.path.basename(path), int(line)) for path, line in _TRACED_LINE.findall(str(error))] if error else []

"""Tie a disagreement to the line that was frozen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torchsan.model import Place
from torchsan.model.capture_events import Cause, Departure, Draw, ReadOut, StateUse, TensorWrite
from torchsan.model.source import shown_path
from torchsan.verify.compare import outputs_difference
from torchsan.verify.departure import both_steps, first_departure, frozen_dtype
from torchsan.verify.frames import is_users, text_of
from torchsan.verify.hunt import Counterexample
from torchsan.verify.methods import Captured
from torchsan.verify.probe import Key, Recording, Site, probe, same
from torchsan.verify.state import attribute_uses, changed_attributes, global_use, tensor_write
from torchsan.verify.subject import Outcome, identical, tensors_of
from torchsan.verify.truth import Truth

MOST_FLIPS = 8


class CauseFinder:
    """Keeps the recordings of the example, which every question needs."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.subject = truth.subject
        self._base: dict[tuple[bool, str], Recording] = {}
        self._attributes: list[str] | None = None

    def base(self, tracing: bool = True, example: list[Any] | None = None) -> Recording:
        """The read-outs of the example with which a capture was made."""
        leaves = example or self.subject.leaves
        key = (tracing, str([getattr(leaf, "shape", None) for leaf in leaves]))
        if key not in self._base:
            self._base[key] = probe(self.subject, leaves, seed=self.subject.seed, tracing=tracing)
        return self._base[key]

    @property
    def attributes(self) -> list[str]:
        if self._attributes is None:
            self._attributes = changed_attributes(self.subject)
        return self._attributes

    def find(self, found: Counterexample, captured: Captured) -> Cause:
        if found.variant.only_size_one and found.got.error is not None and captured.dynamic is not None:
            return replace(self.nowhere(), only_size_one=True)
        if found.variant.left_out:
            # The recordings are of calls with all arguments: they say nothing of this one.
            return self.nowhere()
        # Looking for the cause runs the model in unusual ways: if that breaks, the disagreement still stands.
        with contextlib.suppress(Exception, SystemExit):
            for option in self._options(found, captured):
                if option is not None:
                    return option
        return self.nowhere()

    def _options(self, found: Counterexample, captured: Captured) -> Iterator[Cause | None]:
        kind = found.variant.kind
        if found.difference.is_effect:
            yield self._write(found)
        if kind == "calls":
            yield self.state(found.variant.leaves(self.subject))
        if kind == "seed":
            yield from self.truth.visited.draws[:1]
        if kind == "dtype":
            yield self._dtype(found, captured)
        if kind == "example":
            yield self._written_tensor(found)
        yield self._read_out(found, captured.example)
        if kind != "calls":
            yield self.state(found.variant.leaves(self.subject))
        yield from self.truth.visited.draws[:1]
        yield self._written_tensor(found)
        yield self._departure(found, captured)

    def _write(self, found: Counterexample) -> TensorWrite:
        kind, name = found.difference.kind, found.difference.where
        return tensor_write(self.subject, kind, name, found.variant.leaves(self.subject))

    def _written_tensor(self, found: Counterexample) -> Cause | None:
        """A parameter or buffer that eager changes: later calls read what an earlier one left."""
        before = tensors_of(self.subject.model)
        for name, value in found.want.state.items():
            if name in before and not identical(before[name], value):
                write = tensor_write(self.subject, "state", name, found.variant.leaves(self.subject))
                if write.place is not None:
                    return write
        return None

    def state(self, leaves: list[Any]) -> StateUse | None:
        """Globals and attributes that a call changes, first those both read and written by name."""
        uses = [global_use(self.truth.visited, slot.name) for slot, _ in self.truth.slots]
        if self.attributes:
            uses += attribute_uses(self.subject, self.attributes, leaves)
        uses = [use for use in uses if use.reads]
        return max(uses, key=lambda use: (bool(use.writes), len(use.reads)), default=None)

    def _dtype(self, found: Counterexample, captured: Captured) -> Cause | None:
        subject, variant = self.subject, found.variant
        leaves = variant.leaves(subject)
        return frozen_dtype(*both_steps(subject, captured, leaves, variant.seed, double=True))

    def _departure(self, found: Counterexample, captured: Captured) -> Departure | None:
        subject, variant = self.subject, found.variant
        leaves = variant.leaves(subject)
        if found.got.error is not None or captured.method == "onnx":
            return None
        return first_departure(*both_steps(subject, captured, leaves, variant.seed))

    def _read_out(self, found: Counterexample, example: list[Any] | None) -> ReadOut | None:
        """The read-out that differs and that, frozen, gives what the capture gives."""
        variant = found.variant
        leaves = variant.leaves(self.subject)
        for tracing in (True, False):
            base = self.base(tracing, example)
            other = probe(self.subject, leaves, seed=variant.seed, tracing=tracing, double=variant.double)
            candidates = _differing(base, other)
            if candidates:
                key = self._frozen(candidates, base, found, leaves, tracing)
                before, after = base.by_key()[key], other.by_key().get(key, [])
                site, old, new = _first_difference(before, after)
                return site.read_out(old, new)
        return None

    def _frozen(
        self, candidates: list[Key], base: Recording, found: Counterexample, leaves: list[Any], tracing: bool
    ) -> Key:
        """Give one read-out at a time its old value, and see which turns eager into the capture."""
        values = {key: [site.value for site in sites] for key, sites in base.by_key().items()}
        if len(candidates) > 1:
            for key in candidates[:MOST_FLIPS]:
                flipped = probe(
                    self.subject, leaves, seed=found.variant.seed, tracing=tracing, force={key: values[key]}
                )
                if _equal(flipped.outcome, found.got):
                    return key
        return candidates[0]

    def random_read_out(self) -> Draw | None:
        """A read-out that differs from one random seed to the next."""
        for step in range(1, 6):
            other = probe(self.subject, self.subject.leaves, seed=self.subject.seed + step)
            for key in _differing(self.base(), other):
                place = self.base().by_key()[key][0].places[0]
                return Draw("torch, and Python reads it out", place, text_of(place))
        return None

    def at_line(self, place: Place, or_before: bool) -> ReadOut | None:
        """The read-out of data that the example makes on a line, or last before it in the same function."""
        for tracing in (True, False):
            sites = [
                site for site in self.base(tracing).sites if site.source == "data" and site.places[0].path == place.path
            ]
            here = [s for s in sites if s.places[0].line == place.line]
            if or_before and not here:
                here = [s for s in sites if s.places[0].line < place.line and _same_function(s.places[0], place)]
                here = here[-1:]
            if here:
                return here[0].read_out(here[0].value, here[0].value)
        return None

    def nowhere(self) -> Departure:
        place = definition(self.subject.model) or self.subject.home or Place("<unknown>", 1)
        return Departure(place, text_of(place))


def definition(model: Any) -> Place | None:
    """Where forward is defined: the last resort for a place to show."""
    for owner in (
        getattr(model, "_function", None),
        type(model).forward,
        *(type(m).forward for m in model.modules()),
    ):
        code = getattr(owner, "__code__", None)
        if code is not None and is_users(code.co_filename):
            return Place(shown_path(code.co_filename), code.co_firstlineno, 1, function=code.co_qualname)
    return None


def _same_function(a: Place, b: Place) -> bool:
    return a.function == b.function or not b.function


def _differing(base: Recording, other: Recording) -> list[Key]:
    """Read-outs with other values, in the order in which the example made them."""
    theirs = other.by_key()
    stopped = other.outcome.error is not None
    found = []
    for key, sites in base.by_key().items():
        a, b = [s.value for s in sites], [s.value for s in theirs.get(key, [])]
        if stopped:
            a = a[: len(b)]
        if len(a) != len(b) or not all(same(x, y) for x, y in zip(a, b, strict=True)):
            found.append(key)
    return found


def _first_difference(before: list[Site], after: list[Site]) -> tuple[Site, Any, Any]:
    for a, b in zip(before, after, strict=False):
        if not same(a.value, b.value):
            return a, a.value, b.value
    return before[0], before[0].value, after[0].value if after else "not reached"


def _equal(flipped: Outcome, got: Outcome) -> bool:
    if got.error is not None or flipped.error is not None:
        return got.error is not None and flipped.error is not None
    if not flipped.outputs or not got.outputs:
        return False
    from torchsan.verify.compare import Tolerance

    return outputs_difference(flipped.outputs[0], got.outputs[0], Tolerance(1e-3, 1e-4), only_tensors=True) is None

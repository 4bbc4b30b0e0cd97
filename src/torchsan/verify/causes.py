"""Tie a disagreement to the line that was frozen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torchsan.model import Place
from torchsan.model.capture_events import Cause, Departure, Draw, ReadOut, TensorWrite
from torchsan.model.source import shown_path
from torchsan.verify.compare import Tolerance, outputs_difference
from torchsan.verify.departure import both_steps, first_departure, frozen_dtype
from torchsan.verify.frames import is_users, text_of
from torchsan.verify.guards import limit_of, violated_guard
from torchsan.verify.hunt import Counterexample
from torchsan.verify.imitation import Imitation, run_forgetting
from torchsan.verify.lost_writes import out_of_place_captures, without_each
from torchsan.verify.methods import Captured, capture
from torchsan.verify.mode import mode_use
from torchsan.verify.probe import How, Key, Recording, Site, probe, same
from torchsan.verify.slots import Slot
from torchsan.verify.state import attribute_uses, changed_names, global_use, tensor_write, undone_write
from torchsan.verify.subject import Outcome, Plan, identical, tensors_of
from torchsan.verify.truth import Truth

MOST_FLIPS = 24
HOWS: tuple[How, ...] = ("tracing", "plain", "sizes")
EXACT = Tolerance(1e-5, 1e-6)


class CauseFinder:
    """Keeps the recordings of the example, which every question needs."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.subject = truth.subject
        self._base: dict[tuple[str, str], Recording] = {}

    def base(self, how: How = "tracing", example: list[Any] | None = None) -> Recording:
        """The read-outs of the example with which a capture was made."""
        leaves = example or self.subject.leaves
        key = (how, str([getattr(leaf, "shape", None) for leaf in leaves]))
        if key not in self._base:
            self._base[key] = probe(self.subject, self.subject.plan(leaves), how)
        return self._base[key]

    def find(self, found: Counterexample, captured: Captured) -> Cause:
        """What was proved to be the cause; else where the two part."""
        if found.variant.only_size_one and found.got.error is not None and captured.dynamic is not None:
            return self._size_one(found, captured)
        if found.variant.left_out:
            # The recordings are of calls with all arguments: they say nothing of this one.
            return self.nowhere()
        imitation = Imitation(self.subject, captured, found)
        for look in self._looks(imitation):
            # Looking for the cause runs the model in unusual ways: if that breaks, the disagreement still stands.
            with contextlib.suppress(Exception, SystemExit):
                cause = look(imitation)
                if cause is not None:
                    return cause
        return self.nowhere()

    def _size_one(self, found: Counterexample, captured: Captured) -> Departure:
        """The line at which two sizes were taken for equal, which a size of 1 need not be where it is broadcast."""
        with contextlib.suppress(Exception, SystemExit):
            guard = violated_guard(self.subject, captured, found.variant.leaves(self.subject))
            if guard is not None:
                return Departure(guard.place, guard.text, only_size_one=True, is_operation=True)
        return replace(self.nowhere(), only_size_one=True)

    def _looks(self, imitation: Imitation) -> list[Callable[[Imitation], Cause | None]]:
        """Where to look, the likeliest first."""
        found = imitation.found
        kind = found.variant.kind
        if kind == "mode":
            return [lambda _: mode_use(self.subject, self.truth.example)]
        if kind == "dtype":
            return [self._dtype, self._departure]
        if found.difference.is_effect:
            return [self._state, self._lost_write, self._write]
        reads = [self._guard] if kind == "size" else []
        reads += [self._read_out]
        state = [self._state, self._lost_write]
        first, then = (state, reads) if kind in ("calls", "example") else (reads, state)
        draws = [self._draws]
        order = [*draws, *first, *then] if kind == "seed" else [*first, *then, *draws]
        # A write through `.data` is a read-out of its tensor, too: the write tells more.
        return [*order, self._write_of_nobody, self._by_data, self._optimiser, self._departure]

    def _guard(self, imitation: Imitation) -> Cause | None:
        if imitation.found.got.error is None:
            return None
        found = violated_guard(self.subject, imitation.captured, imitation.plan.calls[0])
        if not isinstance(found, ReadOut):
            return found
        limit = limit_of(imitation.found.got.error)
        for site in self.base("tracing", imitation.captured.example).sites:
            at = site.places[0]
            if site.source == "shape" and (at.path, at.line) == (found.place.path, found.place.line):
                # The tracer tells how the size is used there; torch's exporter only that it is.
                found = replace(site.read_out("", ""), before=found.before, after=found.after)
                break
        return replace(found, limit=limit)

    def _write(self, imitation: Imitation) -> Cause | None:
        kind, name = imitation.found.difference.kind, imitation.found.difference.where
        return tensor_write(self.subject, kind, name, imitation.plan)

    def _lost_write(self, imitation: Imitation) -> Cause | None:
        """A parameter or buffer that eager changes; with that write undone eager is like the capture."""
        before = tensors_of(self.subject.model)
        for name, value in imitation.found.want.state.items():
            if name in before and not identical(before[name], value):
                for at_once in (True, False):
                    write, outcome = undone_write(self.subject, name, imitation.plan, at_once)
                    if write.place is not None and imitation.is_like(outcome):
                        return write
        return None

    def _write_of_nobody(self, imitation: Imitation) -> Cause | None:
        """A write to a value of forward's own that the capture makes elsewhere."""
        for write, outcome in without_each(self.subject, imitation.plan):
            if imitation.is_like(outcome):
                return write
        return None

    def _state(self, imitation: Imitation) -> Cause | None:
        """Attributes and globals which, forgotten after every call, make eager like the capture."""
        names = changed_names(self.subject, imitation.plan)
        options: list[tuple[list[str], list[tuple[Slot, Any]]]] = [([name], []) for name in names]
        options += [([], [slot]) for slot in self.truth.slots]
        if len(options) > 1:
            options.append((names, self.truth.slots))
        for attributes, slots in options:
            if imitation.without(attributes, slots):
                return self._use_of(attributes, slots, imitation.plan)
        return None

    def _use_of(self, names: list[str], slots: list[tuple[Slot, Any]], plan: Plan) -> Cause | None:
        uses = [global_use(self.truth.visited, slot.name) for slot, _ in slots]
        uses += attribute_uses(self.subject, names, plan)
        found = [use for use in uses if use.reads or use.writes]
        use = max(found, key=lambda use: (bool(use.writes), len(use.reads)), default=None)
        registered = tensors_of(self.subject.model)
        if use is not None and use.writes and len(names) == 1 and names[0] in registered:
            return TensorWrite(f"`{names[0]}`", use.writes[0], text_of(use.writes[0]))
        return use

    def unsteady_state(self) -> Cause | None:
        """State by which two calls on the same input differ: forgotten between them, they agree."""
        plan = self.subject.plan(calls=2)
        names = changed_names(self.subject, plan)
        options: list[tuple[list[str], list[tuple[Slot, Any]]]] = [([name], []) for name in names]
        options += [([], [slot]) for slot in self.truth.slots]
        for attributes, slots in options:
            if _repeats(run_forgetting(self.subject, plan, attributes, slots)):
                return self._use_of(attributes, slots, plan)
        before = tensors_of(self.subject.model)
        for name, value in self.truth.example.state.items():
            if name in before and not identical(before[name], value):
                write, outcome = undone_write(self.subject, name, plan, at_once=False)
                if write.place is not None and _repeats(outcome):
                    return write
        return None

    def _draws(self, imitation: Imitation) -> Cause | None:
        draws = self.truth.visited.draws
        return draws[0] if draws and imitation.with_fixed_draws() else None

    def _optimiser(self, imitation: Imitation) -> Cause | None:
        if not imitation.runs_unoptimised():
            return None
        subject, captured = self.subject, imitation.captured
        again = partial(capture, captured.method, subject, example=subject.leaves, varying={}, limit=subject.limit)
        with contextlib.suppress(Exception, SystemExit):
            for place, other in out_of_place_captures(subject, subject.plan(), again):
                if imitation.is_right(other):
                    return Departure(place, text_of(place), is_operation=True, by_optimiser=True)
        return replace(self.nowhere(), by_optimiser=True)

    def _dtype(self, imitation: Imitation) -> Cause | None:
        plan, captured = imitation.plan, imitation.captured
        return frozen_dtype(*both_steps(self.subject, captured, plan.calls[0], plan.seed, double=True))

    def _departure(self, imitation: Imitation) -> Cause | None:
        subject, plan, captured = self.subject, imitation.plan, imitation.captured
        if captured.method == "onnx" or len(plan.calls) > 1:
            return None
        return first_departure(*both_steps(subject, captured, plan.calls[0], plan.seed))

    def _read_out(self, imitation: Imitation) -> Cause | None:
        """The read-out that differs and that, given its old value, makes eager do what the capture does."""
        arguments: tuple[How, ...] = ("arguments",) if imitation.found.variant.kind == "size" else ()
        return self._read_out_by(imitation, (*HOWS, *arguments))

    def _by_data(self, imitation: Imitation) -> Cause | None:
        return self._read_out_by(imitation, ("data",))

    def _read_out_by(self, imitation: Imitation, hows: tuple[How, ...]) -> Cause | None:
        for how in hows:
            base = self.base(how, imitation.captured.example)
            other = probe(self.subject, imitation.plan, how)
            candidates = differing(base, other)
            if how == "arguments":
                # Nearly every call has some: that on which the capture fails is the likeliest, if it fails.
                candidates.sort(key=lambda key: not imitation.fails_at(key[0], key[1]))
            key = self._frozen(candidates, base, imitation, how)
            if key is not None:
                site, old, new = _first_difference(base.by_key()[key], other, key)
                return site.read_out(old, new)
        return None

    def _frozen(self, candidates: list[Key], base: Recording, imitation: Imitation, how: How) -> Key | None:
        """One read-out at a time gets its old value; where none is enough, all, and then as few as will do."""
        values = {key: [site.value for site in sites] for key, sites in base.by_key().items()}

        # A list that has as many items as with the example is held to that: what changes it is what is looked for.
        lists = [key for key in values if key[3] in ("iter", "list") and key not in candidates]
        held = {key: values[key] for key in lists} if imitation.unpacks_strictly else {}
        raising: list[Key] = []
        nearly: list[Key] = []

        def enough(keys: list[Key]) -> bool:
            old = {**held, **{key: values[key] for key in keys}}
            forced = probe(self.subject, imitation.plan, how, old, strict=imitation.unpacks_strictly).outcome
            if forced.error is not None and imitation.found.got.error is not None:
                raising.append(keys[0])
            if not imitation.is_like(forced):
                return False
            if not imitation.says_the_same(forced):
                nearly.append(keys[0])
                return False
            return True

        for key in candidates[:MOST_FLIPS]:
            if enough([key]):
                return key
        if nearly:
            return nearly[0]
        if len(raising) == 1 and how in ("tracing", "plain") and len(candidates) <= MOST_FLIPS:
            # Both raise, in other words (torch unpacks a list, Python runs out of rows), and nothing else does.
            return raising[0]
        if not 1 < len(candidates) <= MOST_FLIPS or not enough(candidates):
            return None
        keys = list(candidates)
        for key in candidates[::-1]:
            fewer = [other for other in keys if other != key]
            if fewer and enough(fewer):
                keys = fewer
        return keys[0]

    def random_read_out(self) -> Draw | None:
        """A read-out that differs from one random seed to the next."""
        for step in range(1, 6):
            other = probe(self.subject, self.subject.plan(seed=self.subject.seed + step))
            for key in differing(self.base(), other):
                place = self.base().by_key()[key][0].places[0]
                return Draw("torch, and Python reads it out", place, text_of(place))
        return None

    def at_line(self, place: Place, or_before: bool) -> ReadOut | None:
        """The read-out of data that the example makes on a line, or last before it in the same function."""
        for how in HOWS[:2]:
            sites = [
                site for site in self.base(how).sites if site.source == "data" and site.places[0].path == place.path
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


def _repeats(outcome: Outcome) -> bool:
    """Whether two calls gave the same."""
    if outcome.error is not None:
        return False
    return outputs_difference(outcome.outputs[0], outcome.outputs[1], EXACT, only_tensors=False) is None


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


def differing(base: Recording, other: Recording) -> list[Key]:
    """Read-outs with other values in any of the calls, in the order in which the example made them."""
    calls = sorted({site.call for site in other.sites})
    found = []
    for key, sites in base.by_key().items():
        before = [s.value for s in sites]
        for call in calls:
            now = [s.value for s in other.by_key(call).get(key, [])]
            stopped = other.outcome.error is not None and call == calls[-1]
            if _differ(before[: len(now)] if stopped else before, now):
                found.append(key)
                break
    return found


def _differ(before: list[Any], now: list[Any]) -> bool:
    return len(before) != len(now) or not all(same(x, y) for x, y in zip(before, now, strict=True))


def _first_difference(before: list[Site], other: Recording, key: Key) -> tuple[Site, Any, Any]:
    after = other.by_key().get(key, [])
    for index, site in enumerate(after):
        old = before[min(index % len(before), len(before) - 1)]
        if not same(old.value, site.value):
            return old, old.value, site.value
    return before[0], before[0].value, after[0].value if after else "not reached"

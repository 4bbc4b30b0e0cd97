"""What eager says on every variant: computed once, compared with every capture."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchsan.errors import UsageError
from torchsan.verify.compare import Tolerance, difference, is_finite
from torchsan.verify.distribution import draws
from torchsan.verify.frames import raised_places
from torchsan.verify.optional import argument_variants
from torchsan.verify.sizes import Finder, Sizes
from torchsan.verify.slots import Slot
from torchsan.verify.state import Visited, changed_slots, visit
from torchsan.verify.subject import (
    Outcome,
    Subject,
    attributes_of,
    identical,
    one_line,
    quiet,
    seed_everything,
    tensors_of,
)
from torchsan.verify.thresholds import threshold_variants
from torchsan.verify.timing import now, ran_out
from torchsan.verify.uninitialised import reads_uninitialised
from torchsan.verify.variants import (
    Variant,
    call_variants,
    given_variants,
    seed_variants,
    sequence,
    value_variants,
)

EXACT = Tolerance(1e-5, 1e-6)


class Truth:
    """Eager outcomes by variant; variants that eager rejects are outside the domain and left out."""

    def __init__(self, subject: Subject, deadline: float) -> None:
        self.subject = subject
        self.deadline = deadline
        self.pairs: list[tuple[Variant, Outcome]] = []
        self.sizes = Sizes()
        # Sizes at which what eager gives is no number, such as the mean of nothing: an answer all the same.
        self.not_finite: list[tuple[Variant, Outcome]] = []
        self.rejected = 0
        self.seconds = 0.0
        self.finite = True
        self.untried: dict[str, None] = {}
        self.random = False
        self.visited = Visited()
        self.slots: list[tuple[Slot, Any]] = []

    def establish(self) -> None:
        """The example must run, and twice the same."""
        subject = self.subject
        started = time.perf_counter()
        given = [subject.leaves[index] for index in subject.tensors]
        if any(tensor.is_meta for tensor in (*subject.model.parameters(), *subject.model.buffers(), *given)):
            raise UsageError("there are tensors on the meta device, which has no values: nothing can be compared")
        self.visited = visit(subject)
        self.slots = changed_slots(self.visited)
        if self.slots:
            subject.reset = self._put_slots_back
        self.example = subject.run(subject.plan())
        self.seconds += time.perf_counter() - started
        if self.example.error is not None:
            raise UsageError(_cannot_run(self.example.error))
        self.finite = is_finite(self.example)
        unwritten = reads_uninitialised(subject)
        if unwritten:
            place, text = unwritten
            raise UsageError(
                f"the model reads memory that nobody wrote to: `{text}` at {place} leaves it as it was, and the result "
                "depends on it, so that it is chance and no capture can be compared with it"
            )
        again = subject.run(subject.plan())
        found = difference(self.example, again, EXACT, names=subject.names)
        if found:
            raise UsageError(
                "the model is not deterministic: two eager runs of the example with the same seed differ "
                f"({found.text}), so no capture can be compared with it"
            )
        self.pairs.append((Variant("example", "the example", seed=subject.seed), self.example))

    def _put_slots_back(self) -> None:
        for slot, value in self.slots:
            slot.put_back(value)

    @property
    def out_of_time(self) -> bool:
        return now() >= self.deadline

    def accept(self, variant: Variant) -> Outcome | None:
        """Eager's outcome, or None when eager rejects the variant or there is no time left to ask."""
        if self.out_of_time:
            if variant.kind != "size":
                # Who looks for sizes knows which were left out.
                self.untried.setdefault(variant.column)
            return None
        return self.ask(variant)

    def ask(self, variant: Variant) -> Outcome | None:
        """The same whatever the time."""
        started = time.perf_counter()
        try:
            outcome = self.subject.run(variant.plan(self.subject))
        except (RuntimeError, TypeError, ValueError):
            return None
        finally:
            self.seconds += time.perf_counter() - started
        if ran_out(outcome.error):
            self.untried.setdefault(variant.column or "sizes")
            return None
        if outcome.error is not None or (self.finite and not is_finite(outcome)):
            self.rejected += 1
            if outcome.error is None and variant.dimension:
                self.not_finite.append((variant, outcome))
            return None
        return outcome

    def add(self, variant: Variant) -> bool:
        outcome = self.accept(variant)
        if outcome is not None:
            self.pairs.append((variant, outcome))
        return outcome is not None

    def explore(self, values: int = 24, sizes: int = 320) -> None:
        """All variants, some of every kind before more of any: a small budget must not leave a kind out."""
        subject = self.subject
        for variant in given_variants(subject):
            self.add(variant)
        others = value_variants(subject, _embedding_sizes(subject))
        self._some_values(others, values // 4)
        for variant in call_variants(subject, self._other_values()):
            self.add(variant)
        for variant in seed_variants(subject):
            self.add(variant)
        self.random = any(draws(self.example, outcome) for variant, outcome in self.pairs if variant.kind == "seed")
        self._other_mode()
        if self.keeps_state:
            # State that moves may matter only after some calls.
            self.add(Variant("calls", "called twelve times", calls=12, seed=subject.seed))
        for variant in argument_variants(subject):
            self.add(variant)
        finder = Finder(subject, self.accept, sizes, lambda: self.out_of_time)
        self.sizes = finder.explore()
        self.untried.update(dict.fromkeys(finder.undecided))
        self.sizes.learn(subject)
        self.pairs += self.sizes.variants
        self._sizes_by_calls()
        with contextlib.suppress(Exception, SystemExit):
            for variant in threshold_variants(subject):
                self.add(variant)
        self._some_values(others, values - values // 4)
        if any(_is_float32(leaf) for leaf in subject.leaves):
            self.add(Variant("dtype", "model and inputs in float64", seed=subject.seed, double=True))

    @property
    def keeps_state(self) -> bool:
        """Whether a call, of those tried, leaves something behind that the next one could read."""
        model = self.subject.model
        attributes, tensors = attributes_of(model), tensors_of(model)
        return bool(self.slots) or any(
            outcome.attributes != attributes or _moved(tensors, outcome.state)
            for variant, outcome in self.pairs
            if not variant.double and variant.training is None
        )

    def _other_values(self) -> list[dict[int, str]]:
        """Edits that eager accepts, those of most inputs first."""
        accepted = [variant.edits for variant, _ in self.pairs if variant.kind == "values"]
        return sorted(accepted, key=len, reverse=True)

    def _other_mode(self) -> None:
        """Where train and eval differ: a capture made in one of them, used in the other."""
        subject = self.subject
        if not any(variant.kind == "seed" for variant, _ in self.pairs):
            return
        training = not subject.model.training
        variant = Variant("mode", f"in {'train' if training else 'eval'} mode", seed=subject.seed, training=training)
        other = self.accept(variant)
        if other is not None and difference(self.example, other, EXACT, names=subject.names) is not None:
            self.pairs.append((variant, other))

    def _sizes_by_calls(self) -> None:
        """Another size on every call, and on one call between two of the example: state that hangs on sizes."""
        if not self.keeps_state:
            return
        subject, seen = self.subject, set[str]()
        for resized, _ in self.sizes.variants:
            if resized.dimension in seen or resized.only_size_one:
                continue
            seen.add(resized.dimension)
            edits, size = resized.edits, resized.label
            self.add(replace(sequence(subject, f"{size} on each of three calls", [edits] * 3), needs=resized.dimension))
            mixed = sequence(subject, f"{size} on the second of three calls", ({}, edits, {}))
            self.add(replace(mixed, needs=resized.dimension))

    def _some_values(self, others: Iterator[Variant], number: int) -> None:
        kept = 0
        # Kinds of tensors that the usual arithmetic does not know are left as they are.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            while kept < number:
                variant = next(others, None)
                if variant is None:
                    break
                kept += self.add(variant)
                if self.out_of_time:
                    break


def _moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return any(name not in before or not identical(before[name], value) for name, value in after.items())


def _is_float32(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32


def _cannot_run(error: BaseException) -> str:
    places = raised_places(error)
    where = f" at {places[0]}" if places else ""
    return f"eager itself cannot run the example: {type(error).__name__}{where}: {one_line(error)}"


class _Embeddings(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject = subject
        self.found: dict[int, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.embedding and len(args) >= 2:
            for index in self.subject.tensors:
                leaf = self.subject.leaves[index]
                if leaf.shape == args[0].shape and leaf.dtype == args[0].dtype and torch.equal(leaf, args[0]):
                    self.found[index] = args[1].shape[0]
        return func(*args, **(kwargs or {}))


def _embedding_sizes(subject: Subject) -> dict[int, int]:
    """How many rows the table has into which an input of integers points."""
    if not any(isinstance(leaf, torch.Tensor) and not leaf.is_floating_point() for leaf in subject.leaves):
        return {}
    model = subject.fresh()
    args, kwargs = subject.inputs()
    seed_everything(subject.seed)
    mode = _Embeddings(subject)
    with quiet(), contextlib.suppress(Exception, SystemExit), mode:
        model(*args, **kwargs)
    return mode.found

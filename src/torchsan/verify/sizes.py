"""Which dimensions of the inputs can vary, and which must vary together: found by trying."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from torchsan.verify.subject import Outcome, Subject
from torchsan.verify.variants import Variant

Axis = tuple[int, int]
LARGEST = 4_000_000
TOGETHER = "several sizes"


@dataclass(frozen=True)
class Dimension:
    """Axes (leaf, dim) that vary together, and sizes that eager accepts."""

    axes: tuple[Axis, ...]
    size: int
    label: str
    accepted: tuple[int, ...] = ()


@dataclass
class Sizes:
    dimensions: list[Dimension] = field(default_factory=list)
    variants: list[tuple[Variant, Outcome]] = field(default_factory=list)

    def varying(self) -> dict[int, list[int]]:
        """Dims that vary, by leaf."""
        found: dict[int, list[int]] = {}
        for dimension in self.dimensions:
            for leaf, dim in dimension.axes:
                found.setdefault(leaf, []).append(dim)
        return {leaf: sorted(set(dims)) for leaf, dims in found.items()}


def resized(dims: Iterable[tuple[int, int, int]]) -> str:
    """The expression that repeats or cuts `x` to other sizes; dims are (dim, old, new)."""
    text = "x"
    for dim, old, new in dims:
        text += f".index_select({dim}, torch.arange({new}) % {old})"
    return text


def _candidates(size: int) -> list[int]:
    """Other sizes to try, the likeliest to be accepted first."""
    larger, smaller = [size + 1, size * 2, size + 8, size + 32, size * 2 + 1], [size - 1, size // 2]
    # Size 1 alone proves nothing: it may be accepted by broadcasting. It comes last.
    return [s for s in dict.fromkeys([*larger, *smaller]) if s > 1 and s != size] + [1] * (size != 1)


def _edits(subject: Subject, axes: Iterable[Axis], step: int, ratio: float | None = None) -> dict[int, str] | None:
    """Edits that change every axis by `step` (or by a ratio); None when a tensor would get too large."""
    wanted: dict[int, list[tuple[int, int, int]]] = {}
    for leaf, dim in axes:
        old = subject.leaves[leaf].shape[dim]
        new = round(old * ratio) if ratio else old + step
        if new < 1 or old < 1 or subject.leaves[leaf].numel() // old * new > LARGEST:
            return None
        wanted.setdefault(leaf, []).append((dim, old, new))
    return {leaf: resized(dims) for leaf, dims in wanted.items()}


def _groups(subject: Subject, axis: Axis, axes: list[Axis], every: list[Axis]) -> Iterator[tuple[Axis, ...]]:
    """Sets of axes that may have to vary together with one axis, the likeliest first.

    Height and width may go together although one of them goes alone, so that `every` axis counts there.
    """
    leaf, dim = axis
    size = subject.leaves[leaf].shape[dim]
    same = [a for a in axes if subject.leaves[a[0]].shape[a[1]] == size]
    peers = [a for a in same if a[1] == dim]
    seen = set()
    square = [a for a in every if a[0] == leaf and subject.leaves[leaf].shape[a[1]] == size]
    options = [peers, [axis], same, square]
    options += [[axis, other] for other in same if other != axis]
    options += [[axis, other] for other in axes if other not in same]
    options += [[a for a in axes if a[1] == dim]]
    for option in options:
        group = tuple(sorted(set(option)))
        if group not in seen and axis in group:
            seen.add(group)
            yield group


def _label(subject: Subject, group: tuple[Axis, ...]) -> str:
    leaf, dim = group[0]
    name = f"{subject.names[leaf]}.shape[{dim}]"
    return name if len(group) == 1 else f"{name} (+{len(group) - 1})"


def _axes(subject: Subject) -> list[Axis]:
    dense = [i for i in subject.tensors if subject.leaves[i].layout == torch.strided]
    return [(leaf, dim) for leaf in dense for dim in range(subject.leaves[leaf].dim())]


class Finder:
    """Tries sizes in eager mode within a number of runs."""

    def __init__(self, subject: Subject, accept: object, runs: int) -> None:
        self.subject = subject
        self.accept = accept
        self.runs = runs
        self.sizes = Sizes()

    def attempt(self, group: tuple[Axis, ...], size: int, new: int, label: str) -> bool:
        edits = _edits(self.subject, group, new - size)
        return self._accepted(edits, f"{label}: {size} → {new}", label)

    def _accepted(self, edits: dict[int, str] | None, text: str, label: str) -> bool:
        if edits is None or self.runs <= 0:
            return False
        self.runs -= 1
        variant = Variant("size", text, edits, seed=self.subject.seed, dimension=label)
        outcome: Outcome | None = self.accept(variant)  # type: ignore[operator]
        if outcome is None:
            return False
        self.sizes.variants.append((variant, outcome))
        return True

    def explore(self) -> Sizes:
        axes = _axes(self.subject)
        done: set[Axis] = set()
        for axis in sorted(axes, key=lambda a: (a[1], a[0])):
            if axis in done:
                continue
            free = [a for a in axes if a not in done]
            dimension = self._dimension(axis, free, axes)
            if dimension:
                done.update(dimension.axes)
                self.sizes.dimensions.append(dimension)
        self._all_together(axes)
        self._several_dimensions()
        return self.sizes

    def _several_dimensions(self) -> None:
        """Each may vary alone and a capture still hold one to the other: height and width of a picture."""
        axes = sorted({axis for dimension in self.sizes.dimensions for axis in dimension.axes})
        if len(self.sizes.dimensions) < 2:
            return
        self._accepted(_edits(self.subject, axes, 1), f"{TOGETHER}: each one larger", TOGETHER)
        spatial = [axis for axis in axes if axis[1] > 1]
        if len(spatial) > 1:
            self._accepted(_edits(self.subject, spatial, 0, 2.0), f"{TOGETHER}: twice the picture", TOGETHER)

    def _all_together(self, axes: list[Axis]) -> None:
        """The batch, or the length, of all inputs at once, although some of them may go alone."""
        for dim in (0, 1):
            group = tuple(a for a in axes if a[1] == dim)
            sizes = {self.subject.leaves[leaf].shape[dim] for leaf, _ in group}
            if len(group) < 2 or len(sizes) > 1 or any(d.axes == group for d in self.sizes.dimensions):
                continue
            size, label = sizes.pop(), _label(self.subject, group)
            accepted = tuple(s for s in (size + 1, 1) if s != size and self.attempt(group, size, s, label))
            if accepted:
                self.sizes.dimensions.append(Dimension(group, size, label, accepted))

    def _dimension(self, axis: Axis, free: list[Axis], every: list[Axis]) -> Dimension | None:
        size = self.subject.leaves[axis[0]].shape[axis[1]]
        for group in _groups(self.subject, axis, free, every):
            label = _label(self.subject, group)
            accepted: list[int] = []
            for new in _candidates(size):
                if new == 1 and axis[1] > 1:
                    # One pixel is no picture: exporters refuse it, and nobody asks for it.
                    continue
                if (new == 1 or new > size * 2) and not accepted:
                    continue
                enough = sum(a > size for a in accepted) >= 2 and new > size
                if not enough and self.attempt(group, size, new, label):
                    accepted.append(new)
            if accepted:
                return Dimension(group, size, label, tuple(accepted))
        return self._batch_of_one(axis, free, size)

    def _batch_of_one(self, axis: Axis, free: list[Axis], size: int) -> Dimension | None:
        """The last resort for a first dimension: one is what people try, even where it only broadcasts."""
        group = tuple(a for a in free if a[1] == 0 and self.subject.leaves[a[0]].shape[0] == size)
        label = _label(self.subject, group) if group else ""
        if axis[1] == 0 and axis == group[0] and size > 1 and self.attempt(group, size, 1, label):
            return Dimension(group, size, label, (1,))
        return None

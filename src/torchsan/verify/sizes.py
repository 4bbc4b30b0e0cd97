"""Which dimensions of the inputs can vary, and which must vary together: found by trying."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch

from torchsan.verify.subject import Outcome, Subject
from torchsan.verify.variants import GIVEN, Variant

Axis = tuple[int, int]
Accept = Callable[[Variant], Outcome | None]
LARGEST, JOINT_RUNS = 4_000_000, 60
TOGETHER = "several sizes"


@dataclass(frozen=True)
class Dimension:
    """Axes (leaf, dim) that vary together, and sizes (of the first) that eager accepts.

    Where they do not all vary by the same step (a map and its half), `units` are their steps.
    """

    axes: tuple[Axis, ...]
    size: int
    label: str
    accepted: tuple[int, ...] = ()
    units: tuple[int, ...] = ()

    @classmethod
    def alone(cls, subject: Subject, axes: tuple[Axis, ...]) -> Dimension:
        """Axes that may vary without others of the same size."""
        return cls(axes, size_of(subject, axes[0]), f"{_label(subject, axes)} alone")

    def reaches_one(self, subject: Subject, new: int) -> bool:
        """Whether an axis that hangs on the first comes to size 1 with it, which is special to exporters."""
        steps = (new - self.size) // (self.units or (1,))[0]
        units = self.units or (1,) * len(self.axes)
        return any(size_of(subject, axis) + steps * unit == 1 for axis, unit in zip(self.axes, units, strict=True))

    def sizes(self, subject: Subject, new: int) -> dict[Axis, int] | None:
        """The sizes of all its axes with another one of the first; None when there are none."""
        units = self.units or (1,) * len(self.axes)
        steps, rest = divmod(new - self.size, units[0])
        sizes = {axis: size_of(subject, axis) + steps * unit for axis, unit in zip(self.axes, units, strict=True)}
        return None if rest or min(sizes.values()) < 1 else sizes

    def edits(self, subject: Subject, new: int) -> dict[int, str] | None:
        """The inputs with another size of the first axis; None when there is no such size."""
        sizes = self.sizes(subject, new)
        steps = [size - size_of(subject, axis) for axis, size in (sizes or {}).items()]
        return None if sizes is None else _edits(subject, sizes, steps)

    def variant(self, subject: Subject, new: int) -> Variant | None:
        edits = self.edits(subject, new)
        label = f"{self.label}: {self.size} → {new}"
        return None if edits is None else Variant("size", label, edits, seed=subject.seed, dimension=self.label)


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

    def beyond_two(self, label: str) -> bool:
        """Whether a dimension is neither a batch nor a length, by convention the first two of an input."""
        return any(d.label == label and all(dim > 1 for _, dim in d.axes) for d in self.dimensions)

    def only_broadcasts(self, label: str) -> bool:
        """Whether what was varied is no dimension: eager takes nothing but a size of 1 there, by broadcasting."""
        return all(d.label != label for d in self.dimensions)

    def learn(self, subject: Subject) -> None:
        """Dimensions that nobody found by trying, but that the given inputs vary."""
        known = {(leaf, dim) for leaf, dims in self.varying().items() for dim in dims}
        axes = [axis for axis in _axes(subject) if axis not in known]
        for leaves in filter(None, subject.others):
            sizes = {axis: size_at(leaves[axis[0]], axis[1]) for axis in axes}
            new = [axis for axis, size in sizes.items() if size not in (None, size_of(subject, axis))]
            if new:
                accepted = (sizes[new[0]] or 0,)
                self.dimensions.append(Dimension(tuple(new), size_of(subject, new[0]), GIVEN, accepted))
                axes = [axis for axis in axes if axis not in new]


def resized(dims: Iterable[tuple[int, int, int]]) -> str:
    """The expression that repeats or cuts `x` to other sizes; dims are (dim, old, new)."""
    text = "x"
    for dim, old, new in dims:
        text += f".index_select({dim}, torch.arange({new}) % {old})"
    return text


def _candidates(size: int) -> list[int]:
    """Other sizes to try, the likeliest to be accepted first."""
    larger, smaller = [size + 1, size * 2, size + 8, size + 32, size * 2 + 1], [size - 1, size // 2, 2]
    # Size 1 alone proves nothing: it may be accepted by broadcasting. It comes last.
    return [s for s in dict.fromkeys([*larger, *smaller]) if s > 1 and s != size] + [1] * (size != 1)


def _edits(subject: Subject, axes: Iterable[Axis], steps: Iterable[int]) -> dict[int, str] | None:
    """Edits that change every axis by its step; None when a tensor would get too large or empty."""
    wanted: dict[int, list[tuple[int, int, int]]] = {}
    elements: dict[int, int] = {}
    for (leaf, dim), step in zip(axes, steps, strict=True):
        old = size_of(subject, (leaf, dim))
        new = old + step
        if new < 1 or old < 1:
            return None
        elements[leaf] = elements.get(leaf, subject.leaves[leaf].numel()) // old * new
        wanted.setdefault(leaf, []).append((dim, old, new))
    if any(number > LARGEST for number in elements.values()):
        return None
    return {leaf: resized(dims) for leaf, dims in wanted.items()}


def size_at(value: object, dim: int) -> int | None:
    return int(value.shape[dim]) if isinstance(value, torch.Tensor) and dim < value.dim() else None


def size_of(subject: Subject, axis: Axis) -> int:
    return int(subject.leaves[axis[0]].shape[axis[1]])


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


def parts_alone(subject: Subject, dimension: Dimension) -> list[Dimension]:
    """Of a dimension of several inputs, what lies in one of them: all of it, a picture's axes, or one axis."""
    leaves = sorted({leaf for leaf, _ in dimension.axes})
    found: dict[tuple[Axis, ...], None] = {}
    for leaf in leaves if len(leaves) > 1 else []:
        axes = tuple(axis for axis in dimension.axes if axis[0] == leaf)
        found.update(dict.fromkeys(filter(None, (axes, tuple(a for a in axes if a[1] > 1), *((a,) for a in axes)))))
    return [Dimension.alone(subject, axes) for axes in found]


def _axes(subject: Subject) -> list[Axis]:
    dense = [i for i in subject.tensors if subject.leaves[i].layout == torch.strided]
    return [(leaf, dim) for leaf in dense for dim in range(subject.leaves[leaf].dim())]


class Finder:
    """Tries sizes in eager mode within a number of runs."""

    def __init__(self, subject: Subject, accept: Accept, runs: int, over: Callable[[], bool]) -> None:
        self.subject = subject
        self.accept = accept
        self.over = over
        self.runs = runs
        self.sizes = Sizes()
        self.undecided: list[str] = []

    def attempt(self, dimension: Dimension, new: int) -> bool:
        return self._takes(dimension.variant(self.subject, new))

    def _accepted(self, edits: dict[int, str] | None, text: str, label: str) -> bool:
        changed = None if edits is None else Variant("size", text, edits, seed=self.subject.seed, dimension=label)
        return self._takes(changed)

    def _takes(self, variant: Variant | None) -> bool:
        if variant is None or self.runs <= 0:
            return False
        self.runs -= 1
        outcome = self.accept(variant)
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
            if self.over() or self.runs <= 0:
                self.undecided.append(_label(self.subject, (axis,)))
                continue
            free = [a for a in axes if a not in done]
            self._keep(self._dimension(axis, free, axes), done)
        self._hanging_together(axes, done)
        self._each_input_alone()
        self._all_together(axes)
        self._several_dimensions()
        if self.over() and len(axes) > 1 and not self.undecided:
            self.undecided.append(TOGETHER)
        return self.sizes

    def _keep(self, dimension: Dimension | None, done: set[Axis]) -> None:
        if dimension:
            done.update(dimension.axes)
            self.sizes.dimensions.append(dimension)

    def _hanging_together(self, axes: list[Axis], done: set[Axis]) -> None:
        """Axes that could not vary alone: those that eager lets grow in proportion, made as few as it can be."""
        tried: set[tuple[Axis, ...]] = set()
        # Most models reject all of this: its runs are its own, so that the rest is not starved.
        kept, self.runs = self.runs, self.runs + JOINT_RUNS
        for axis in axes:
            if axis in done or size_of(self.subject, axis) < 2:
                continue
            for start in starting_sets(self.subject, axis, axes):
                if start in tried:
                    continue
                tried.add(start)
                if self._doubled(start):
                    group = self._fewest(start, axis)
                    self._keep(self._proportional(group), done)
                    break
        self.runs = kept

    def _each_input_alone(self) -> None:
        """Sizes that vary together because the example has the same may be free of each other: queries and keys."""
        for dimension in list(self.sizes.dimensions):
            if dimension.size > 1 and not dimension.units:
                for leaf in sorted({leaf for leaf, _ in dimension.axes}):
                    parts = [part for part in parts_alone(self.subject, dimension) if part.axes[0][0] == leaf]
                    alone = self._alone(parts)
                    self._keep(alone, set())
                    if alone is None:
                        self._broadcast(parts)

    def _broadcast(self, parts: list[Dimension]) -> None:
        """One input of size 1 where the others keep theirs: no dimension, but what eager makes of it counts."""
        for alone in parts:
            if self.attempt(alone, 1):
                return

    def _alone(self, parts: list[Dimension]) -> Dimension | None:
        """As many of the axes of one input as may vary without the others, by one or, as grouped heads, by whole
        multiples."""
        for alone in parts:
            size = alone.size
            wanted = ((size + 1,), (size * 2, size // 2))
            for sizes in wanted:
                accepted = tuple(new for new in sizes if new > 1 and self.attempt(alone, new))
                if accepted:
                    return replace(alone, accepted=accepted)
        return None

    def _doubled(self, group: tuple[Axis, ...]) -> bool:
        """Whether eager accepts twice the size of all of them; what was only a question is not kept."""
        edits = _edits(self.subject, group, [size_of(self.subject, axis) for axis in group])
        accepted = self._accepted(edits, "", "")
        if accepted:
            self.sizes.variants.pop()
        return accepted

    def _fewest(self, group: tuple[Axis, ...], axis: Axis) -> tuple[Axis, ...]:
        """Leave out one axis after another as long as eager goes on accepting it."""
        for other in group:
            fewer = tuple(a for a in group if a != other)
            if other != axis and fewer and self._doubled(fewer):
                group = fewer
        return group

    def _proportional(self, group: tuple[Axis, ...]) -> Dimension | None:
        sizes = [size_of(self.subject, axis) for axis in group]
        for divisor in dict.fromkeys((math.gcd(*sizes), *_divisors(math.gcd(*sizes)), 1)):
            units = tuple(size // divisor for size in sizes)
            dimension = Dimension(group, sizes[0], _label(self.subject, group), units=units)
            wanted = (sizes[0] + units[0], sizes[0] * 2, sizes[0] - units[0])
            accepted = tuple(new for new in dict.fromkeys(wanted) if new > 1 and self.attempt(dimension, new))
            if accepted:
                return replace(dimension, accepted=accepted)
        return None

    def _several_dimensions(self) -> None:
        """Each may vary alone and a capture still hold one to the other: height and width of a picture."""
        if len(self.sizes.dimensions) < 2:
            return
        self._accepted(self._combined(self.sizes.dimensions, 1), f"{TOGETHER}: each one larger", TOGETHER)
        self._accepted(self._combined(self.sizes.dimensions, 0), f"{TOGETHER}: each twice as large", TOGETHER)
        spatial = [d for d in self.sizes.dimensions if all(dim > 1 for _, dim in d.axes)]
        if len(spatial) > 1 and len(spatial) < len(self.sizes.dimensions):
            self._accepted(self._combined(spatial, 0), f"{TOGETHER}: twice the picture", TOGETHER)

    def _combined(self, dimensions: list[Dimension], steps: int) -> dict[int, str] | None:
        """Every dimension larger by some of its steps, or (0) twice as large."""
        wanted: dict[Axis, int] = {}
        for dimension in dimensions:
            for axis, unit in zip(dimension.axes, dimension.units or (1,) * len(dimension.axes), strict=True):
                wanted.setdefault(axis, unit * steps if steps else size_of(self.subject, axis))
        return _edits(self.subject, wanted, wanted.values())

    def _all_together(self, axes: list[Axis]) -> None:
        """The batch, or the length, of all inputs at once, although some of them may go alone."""
        for dim in (0, 1):
            group = tuple(a for a in axes if a[1] == dim)
            sizes = {size_of(self.subject, axis) for axis in group}
            if len(group) < 2 or len(sizes) > 1 or any(d.axes == group for d in self.sizes.dimensions):
                continue
            size = sizes.pop()
            dimension = Dimension(group, size, _label(self.subject, group))
            accepted = tuple(s for s in (size + 1, 1) if s != size and self.attempt(dimension, s))
            if accepted:
                self.sizes.dimensions.append(replace(dimension, accepted=accepted))

    def _dimension(self, axis: Axis, free: list[Axis], every: list[Axis]) -> Dimension | None:
        size = size_of(self.subject, axis)
        for group in _groups(self.subject, axis, free, every):
            dimension = Dimension(group, size_of(self.subject, group[0]), _label(self.subject, group))
            accepted: list[int] = []
            for new in _candidates(dimension.size):
                if self._is_no_picture(axis, new):
                    continue
                if (new == 1 or new > dimension.size * 2) and not accepted:
                    continue
                enough = sum(a > dimension.size for a in accepted) >= 2 and new > dimension.size
                if not enough and self.attempt(dimension, new):
                    accepted.append(new)
            if accepted:
                return replace(dimension, accepted=tuple(accepted))
        return self._of_squares(axis, free, size) or self._batch_of_one(axis, free, size)

    def _of_squares(self, axis: Axis, free: list[Axis], size: int) -> Dimension | None:
        """A length that is a map laid out in a row: the next that eager may take has sides of twice the size."""
        same = tuple(a for a in free if a[1] == axis[1] and size_of(self.subject, a) == size)
        for group in dict.fromkeys((same, (axis,))) if axis in same and math.isqrt(size) ** 2 == size > 1 else ():
            dimension = Dimension(group, size, _label(self.subject, group))
            accepted = tuple(new for new in (size * 4, size // 4) if new > 1 and self.attempt(dimension, new))
            if accepted:
                return replace(dimension, accepted=accepted)
        return None

    def _is_no_picture(self, axis: Axis, new: int) -> bool:
        """One pixel, or two of a larger picture: nobody asks for them. A sequence of one is another matter."""
        leaf, dim = axis
        return dim > 1 and self.subject.leaves[leaf].dim() > 3 and new < min(3, size_of(self.subject, axis) - 1)

    def _batch_of_one(self, axis: Axis, free: list[Axis], size: int) -> Dimension | None:
        """The last resort for a first dimension: one is what people try, even where it only broadcasts."""
        group = tuple(a for a in free if a[1] == 0 and size_of(self.subject, a) == size)
        if axis[1] != 0 or axis != group[0] or size <= 1:
            return None
        dimension = Dimension(group, size, _label(self.subject, group), (1,))
        return dimension if self.attempt(dimension, 1) else None


def _divisors(number: int) -> list[int]:
    """Of which there are few, the larger first: steps that keep a size a multiple of 8, 4 or 2."""
    return [d for d in (number // 2, number // 4, number // 8) if d > 1]


def starting_sets(subject: Subject, axis: Axis, axes: list[Axis]) -> list[tuple[Axis, ...]]:
    """Generous sets of axes that may have to grow in proportion, the likeliest first."""
    grown = [a for a in axes if size_of(subject, a) > 1]
    pictures = [a for a in grown if a[1] >= 2]
    options = [
        pictures,
        [a for a in grown if a[0] == axis[0] and a[1] >= 2],
        [a for a in grown if a[1] == axis[1]],
        [a for a in grown if a[1] <= 1],
        [a for a in grown if a[1] != 1],
        [a for a in grown if a[0] == axis[0]],
        grown,
    ]
    return list(dict.fromkeys(tuple(sorted(option)) for option in options if axis in option))

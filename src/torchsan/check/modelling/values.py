"""What the static engine believes about values: tensors and their memory, modules, plain things.

One `Tensor` object stands for one Python tensor object of the analysed program, so two names for one
tensor are one object here; memory is a `Storage`, shared by views. A value of which nothing is known is
a `Tensor` that is not `sure`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchsan.check.reading.program import ClassInfo, FunctionInfo


# Conditions that the source does not decide, each with the answer that the path took.
Answers = tuple[tuple[str, bool], ...]
# Among them: a branch that is taken at most once in the life of the object.
ONCE = "once"
# … or a branch that is asked anew for each item of a loop, this one among them or not.
IN_TURN = "in turn: "


class Grad(IntEnum):
    """Whether a tensor asks for a gradient."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(slots=True, eq=False)
class Write:
    """One in-place change of memory. `how`: op, step (an optimizer's), behind (unseen by autograd)."""

    place: ast.AST
    time: int
    how: str
    op: str
    target: ast.AST | None
    origin: ast.AST | None = None
    foreign: bool = False
    # Answers, not known from the source, under which it happens.
    inside: Answers = ()
    # Whether a test that raises an error was passed before.
    guarded: bool = False
    # Whether it happens where no gradients are kept.
    unseen: bool = False


@dataclass(slots=True, eq=False)
class Storage:
    """Memory of a tensor.

    `kind`: fresh, argument, parameter, buffer, state (kept by the object from call to call), default (of an
    argument), unknown.
    """

    kind: str = "fresh"
    name: str = ""
    owner: str = ""
    writes: list[Write] = field(default_factory=list)
    saved: bool = False
    has_gradient: bool = False
    # What in-place writes have made of the whole memory's history.
    history: Node | None = None
    grad: Grad = Grad.NO
    # Memory that this probably is: `x.reshape(-1)` of a contiguous x is x's own.
    probably: Storage | None = None
    # … or only where a conversion had nothing to convert.
    sometimes: bool = False
    # A parameter whose module was given to a function that is not followed.
    handed: bool = False
    # The function that made new memory.
    made_by: str = ""

    def written_after(self, time: int) -> Write | None:
        return next((w for w in self.writes if w.time > time), None)


@dataclass(slots=True, eq=False)
class Save:
    """A node keeps a tensor's value for backward."""

    storage: Storage
    time: int
    what: str
    name: ast.AST | None
    certain: bool
    inside: Answers = ()


@dataclass(slots=True, eq=False)
class Node:
    """An op in the graph that backward walks."""

    op: str
    place: ast.AST
    parents: list[Node] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    # The backward that released what it saved.
    freed: ast.AST | None = None
    # Whether a gradient surely passes: a function that is not known may detach.
    passes: bool = True
    # Memory of the leaves that the op was given: backward leaves gradients there.
    leaves: list[Storage] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Tensor:
    storage: Storage = field(default_factory=Storage)
    grad: Grad = Grad.NO
    node: Node | None = None
    leaf: bool = False
    sure: bool = True
    # Taken for a tensor as soon as it is used like an array.
    likely: bool = False
    # Known to be something else: it has keys, say.
    other: bool = False
    # "", "view", "several" (one of many views), "expanded", "stretched" (expanded, perhaps by nothing), "custom" (out
    # of a custom Function)
    view: str = ""
    base: Tensor | None = None
    made_in: str = "grad"
    place: ast.AST | None = None
    op: str = ""
    detached: bool = False
    behind: bool = False
    origin: ast.AST | None = None
    # Where the graph behind it was dropped, if that was seen.
    cut_at: ast.AST | None = None
    keeps_grad: bool = False
    # Calls of detach() whose result was only added to it.
    constants: tuple[ast.Call, ...] = ()
    # A leaf made of a detached tensor: what happened to the memory before is none of its history.
    apart: bool = False
    # Whether all that it was computed from is known: a number that is not known may have been a tensor.
    firm: bool = True
    # Whether it would have a graph but for an op that has none: a maximum's place, or anything under `no_grad`.
    lost: bool = False
    # Whether it has, as far as the source says, a dimension of size 1 or none at all: to expand it repeats elements.
    thin: bool = False

    @property
    def wants_grad(self) -> Grad:
        if self.detached:
            return Grad.NO
        return self.grad if self.apart else max(self.grad, self.storage.grad)

    @property
    def leaf_memory(self) -> list[Storage]:
        """The memory in which backward leaves the gradient, when this is a leaf or a view of one."""
        whole = self.base or self
        return [self.storage] if whole.leaf and not self.detached and self.grad != Grad.NO else []

    def nodes(self) -> list[Node]:
        if self.detached:
            return []
        history = None if self.apart else self.storage.history
        return [n for n in (self.node, history) if n is not None]


@dataclass(slots=True, eq=False)
class Plain:
    """A Python value that is no tensor, such as a size or a string. `known` when `value` is."""

    value: Any = None
    known: bool = False
    # The `.item()` that made it of a tensor with a graph.
    cut_at: ast.AST | None = None
    # A whole number of which only this is known: it is no smaller.
    least: int | None = None


def truth(value: Any) -> bool | None:
    """Whether a value is true; None where that is not known."""
    if not isinstance(value, Plain):
        return None
    if value.least is not None and value.least > 0:
        return True
    return bool(value.value) if value.known else None


@dataclass(slots=True, eq=False)
class Sequence:
    """A list, tuple or set: its items, or `item()` for as many as are asked for."""

    items: list[Any]
    make: Callable[[], Any] | None = None
    fields: tuple[str, ...] = ()
    # When each tensor was appended.
    kept: list[tuple[Any, int]] = field(default_factory=list)

    def empty(self) -> None:
        self.items.clear()
        self.kept.clear()
        self.make = None

    def take(self, count: int) -> list[Any]:
        missing = count - len(self.items)
        if self.make is not None and missing > 0:
            self.items += [self.make() for _ in range(missing)]
        return self.items[:count]


@dataclass(slots=True, eq=False)
class Mapping:
    """A dictionary with what is known of it."""

    items: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Library:
    """Something that torch (or another library) defines, by its dotted name."""

    name: str


@dataclass(slots=True, eq=False)
class Function:
    """A function of the program, with the scope it closes over and the object it is bound to."""

    info: FunctionInfo
    scope: Any
    bound: Any = None


@dataclass(slots=True, eq=False)
class Class:
    info: ClassInfo
    scope: Any


@dataclass(slots=True, eq=False)
class Method:
    """A method of a value that the engine models itself: a tensor's, a layer's, an optimizer's."""

    receiver: Any
    name: str
    node: ast.AST


@dataclass(slots=True, eq=False)
class Instance:
    """An object of a class of the program."""

    cls: Class
    attributes: dict[str, Any] = field(default_factory=dict)
    module: bool = False
    called: list[tuple[ast.expr, ast.AST]] = field(default_factory=list)
    # The arguments of `__init__`, when attributes are worked out only as they are asked for.
    start: Any = None
    # Given to a function that is not followed.
    handed: bool = False
    # Answers, not known from the source, under which it was made.
    inside: Answers = ()


@dataclass(slots=True, eq=False)
class Layer:
    """A layer that torch.nn defines."""

    name: str
    place: ast.AST
    inplace: bool = False
    # The names that the program gave to it, each with its assignment.
    called: list[tuple[ast.expr, ast.AST]] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    children: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    # Answers, not known from the source, under which it was made.
    inside: Answers = ()


@dataclass(slots=True, eq=False)
class Optimizer:
    name: str
    given: Any


@dataclass(slots=True, eq=False)
class Snapshot:
    """What `state_dict()` or `list(parameters())` handed out: aliases of live memory."""

    owner: Any
    place: ast.AST
    time: int
    # How the program calls the owner.
    name: ast.AST | None = None


def parameters_of(value: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """The parameters below a module, layer, list or optimizer argument, as far as they are known."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        # A parameter stays one while its gradient is switched off.
        if value.leaf and (value.wants_grad == Grad.YES or value.storage.kind == "parameter"):
            yield value
        return
    below: list[Any] = []
    if isinstance(value, Instance):
        below = list(value.attributes.values())
    elif isinstance(value, Layer):
        below = [*value.parameters.values(), *value.children]
    elif isinstance(value, Sequence):
        below = value.items
    elif isinstance(value, Mapping):
        below = list(value.items.values())
    elif isinstance(value, Optimizer):
        below = [value.given]
    for item in below:
        yield from parameters_of(item, seen)


def modules_below(module: Any, most: int = 30) -> list[Any]:
    """The modules inside a module, and itself at the end, in the order in which `apply` goes."""
    found: list[Any] = []

    def walk(value: Any) -> None:
        if len(found) >= most or any(value is known for known in found):
            return
        if isinstance(value, Layer):
            for child in value.children:
                walk(child)
            found.append(value)
        elif isinstance(value, Instance) and value.module and value not in waiting:
            waiting.append(value)
            for part in list(value.attributes.values()):
                walk(part)
            found.append(value)

    waiting: list[Any] = []
    walk(module)
    return found


def tensors_in(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """Tensors in a value or a nest of lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Sequence):
        for item in value.items:
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.items.values():
            yield from tensors_in(item, depth - 1)

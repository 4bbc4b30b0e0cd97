"""Writes to memory that is not the function's own: its argument's, or what the object keeps from call to call.

Such a write is a mistake where nothing says that it is meant, and somebody reads the memory afterwards.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchsan.check.facts import Fact
from torchsan.check.following.blocks import names_bound, names_read
from torchsan.check.following.callers import Use, uses_of
from torchsan.check.following.options import defaults_of, taken
from torchsan.check.following.purposes import changes_nothing_twice, is_for_writing
from torchsan.check.following.said import PERMITS, announced, documented, quiet, remarked
from torchsan.check.modelling.names import SHAPE_ONLY
from torchsan.check.modelling.values import ONCE, Storage, Tensor, Write
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.check.reading.project import Project
from torchsan.check.telling.evidence import Claim, Evidence, Shown, certainty
from torchsan.check.telling.teller import Teller

_BLANKS = frozenset(
    {"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros"}
)
# Asked before a write: whether it may be done in place, and whether a gradient forbids it.
_IF_FREE = re.compile(r"\.requires_grad")
# The callers' tensors are there to be written to.
_MEANT = frozenset({Use.FOR_EFFECT, Use.KEPT})


class OwnedWrites:
    """What all paths through one function have shown."""

    def __init__(self) -> None:
        self.places: dict[ast.AST, list[tuple[Storage, Write, bool]]] = {}

    def note(self, owned: Iterable[tuple[Tensor, Write]]) -> None:
        for tensor, write in owned:
            self.places.setdefault(write.place, []).append((tensor.storage, write, tensor.sure and not tensor.other))

    def writes_to(self, owner: Storage) -> list[Write]:
        """All writes to an argument that were seen: `m.mul_(beta)` is followed by `m.add_(x)`."""
        return [w for seen in self.places.values() for s, w, _ in seen if _same(owner_of(s), owner)]

    def facts(self, info: FunctionInfo, program: Program, project: Project | None, tell: Teller) -> list[Fact]:
        found: list[Fact] = []
        told: set[tuple[str, str]] = set()
        for seen in self.places.values():
            owned = [(owner_of(s), w, sure) for s, w, sure in seen if owner_of(s) is not None]
            if not owned or not any(sure for _, _, sure in owned):
                continue
            storage, write, _ = next(item for item in owned if item[2])
            if (
                storage is None
                or (storage.kind, storage.name) in told
                or write.origin is not None
                or write.foreign
                or meant(write)
                or (storage.kind == "argument" and is_for_writing(info, storage.name, self.writes_to(storage)))
            ):
                continue
            mixed = any(owner_of(s) is None and s.kind in ("fresh", "unknown") for s, _, _ in seen)
            if storage.kind == "state" and not mixed:
                continue
            # `if total is None: total = zeros(…)`: what is given instead is there to be filled.
            guessed = any(weak(s) or (mixed and blank(s)) for s, _, _ in seen)
            case = Case(info, program, project, storage, write, self.writes_to(storage), mixed, guessed)
            # One mistake may take several lines.
            told |= {(o.kind, o.name) for s, _, _ in seen if (o := owner_of(s)) is not None}
            sure = certainty(Claim.OTHERS, case.shown()) == "certain"
            found.append(tell.owned(storage, write, info, mixed=mixed, certain=sure))
        return found


@dataclass(frozen=True, slots=True)
class Case:
    """A write to memory of somebody else, and what there is to be shown of it."""

    info: FunctionInfo
    program: Program
    project: Project | None
    storage: Storage
    write: Write
    # All writes to the same memory.
    writes: list[Write]
    # On other paths the same line writes to a tensor of its own.
    mixed: bool
    guessed: bool

    def shown(self) -> Shown:
        """In the order of what it costs: the whole tree may have to be read for the last."""
        return {
            Evidence.FOLLOWED: self.follows,
            Evidence.SILENT: self.is_silent,
            Evidence.LASTING: lambda: any(lasts(write) for write in self.writes),
            Evidence.TAKEN: lambda: taken(self.write.inside, [self.info], self.project),
            Evidence.STANDS_IN: self.stands_in,
            Evidence.READ: self.is_read,
            Evidence.DESCRIBED: self.is_described,
        }

    def follows(self) -> bool:
        if self.guessed:
            return False
        argument = self.storage.kind == "argument"
        return not argument or (self.info.returns and public(self.info) and not is_test(self.program.path))

    def is_silent(self) -> bool:
        if any(_IF_FREE.search(condition) for condition, _ in self.write.inside):
            # Its author has thought of what the write may spoil.
            return False
        said = quiet(self.info, self.program, self.storage) or announced(self.info, self.write)
        return not said and not remarked(self.info, self.program, self.write)

    def stands_in(self) -> bool:
        if not self.mixed or self.storage.kind == "state":
            return self.mixed
        if out_of_layer(self.info, self.write):
            return True
        optional = defaults_of(self.info).get(self.storage.name)
        spared = hands_back(self.info, self.storage.name) or self.uses() & {Use.FRESH, *_MEANT}
        return isinstance(optional, ast.Constant) and optional.value is None and not spared

    def is_read(self) -> bool:
        if self.mixed and reads_again(self.info, self.storage.name, self.write):
            return True
        uses = self.uses()
        if Use.READ_SOMETIMES in uses:
            # The branch that calls and the one that writes may never go together.
            uses = uses - {Use.READ_SOMETIMES} | {Use.FRESH if self.write.inside or self.write.guarded else Use.READ}
        if Use.READ not in uses or uses & _MEANT:
            return False
        several = self.info.owner is not None and ambiguous(self.info.name, self.project)
        # What is changed and handed back says by that what it does, unless it says otherwise.
        told = documented(self.info) or not hands_back(self.info, self.storage.name)
        return told and (not several or uses == {Use.READ})

    def is_described(self) -> bool:
        """Nobody in the tree tells: callers from outside trust what the function says of itself."""
        described = documented(self.info)
        if self.mixed or not self.program.package or not (described or self.write.op in SHAPE_ONLY):
            return False
        uses = self.uses()
        return uses <= {Use.HANDED_ON} and (described or bool(uses))

    def uses(self) -> set[Use]:
        return uses_of(self.info, self.storage.name, self.program, self.project)


def lasts(write: Write) -> bool:
    """Whether a write takes more than what has to go: not what is masked, nor a dimension of size one."""
    place = write.place
    if isinstance(place, ast.AugAssign) and isinstance(place.op, ast.Mult) and "mask" in ast.unparse(place.value):
        return False
    return write.op != "squeeze_" and not changes_nothing_twice(write)


def ambiguous(name: str, project: Project | None) -> bool:
    """Whether several classes of the tree have a method of this name: whose callers are whose is not known."""
    if project is None:
        return False
    return name not in ("forward", "__call__") and sum(t.count(f"def {name}(") for _, t in project.mentions(name)) > 1


def _same(first: Storage | None, second: Storage) -> bool:
    # On another path the argument is another object of the same name.
    return first is not None and (first.kind, first.name) == (second.kind, second.name)


def owner_of(storage: Storage | None) -> Storage | None:
    """The argument or the state that memory is, or probably is."""
    while storage is not None and storage.kind not in ("argument", "state"):
        storage = storage.probably
    return storage


def weak(storage: Storage) -> bool:
    """Whether memory is the owner's in some calls only: `x.cpu()` is x where x is there already."""
    return storage.probably is not None and storage.sometimes


def meant(write: Write) -> bool:
    """Whether the write itself says that it is meant: through `.data`, once, or where it is allowed."""
    if write.how == "behind" or any(c == ONCE or PERMITS.search(c) for c, _ in write.inside):
        return True
    # `mask[mask.clone()] = …`: who copies what is about to be written knows that it is.
    target = getattr(write.place, "targets", [None])[0]
    return isinstance(target, ast.Subscript) and "clone(" in ast.unparse(target.slice)


def hands_back(info: FunctionInfo, name: str) -> bool:
    """Whether a function returns the very argument that it has changed."""
    returns = [n.value for n in ast.walk(info.node) if isinstance(n, ast.Return)]
    return bool(returns) and all(isinstance(value, ast.Name) and value.id == name for value in returns)


def is_test(path: str) -> bool:
    """Whether a file holds tests: their functions are called by nobody but themselves."""
    *folders, name = path.split("/")
    return name.startswith("test_") or name.endswith("_test.py") or not {"tests", "test"}.isdisjoint(folders[-4:])


def out_of_layer(info: FunctionInfo, write: Write) -> bool:
    """Whether what is written came out of a layer: `x = self.proj(x)` is x itself where the layer is an identity."""
    name = write.target.id if isinstance(write.target, ast.Name) else ""
    bound = [n for n in ast.walk(info.node) if isinstance(n, ast.Assign) and names_bound(n) == {name}]
    last = max((n for n in bound if n.lineno < write.place.lineno), key=lambda n: n.lineno, default=None)  # type: ignore[attr-defined]
    made = last.value.func if last is not None and isinstance(last.value, ast.Call) else None
    if not isinstance(made, ast.Attribute) or ast.unparse(made.value) != "self" or info.name != "forward":
        return False
    return info.owner is not None and made.attr not in info.owner.methods


def reads_again(info: FunctionInfo, name: str, write: Write) -> bool:
    """Whether the function itself reads its argument after it has written to it by another name: `h = x.view(-1)`."""
    target, line = write.target, getattr(write.place, "end_lineno", 0)
    if not isinstance(target, ast.Name) or target.id == name or not _holds(info.node, write.place):
        return False
    body = [] if isinstance(info.node, ast.Lambda) else info.node.body
    stored = any(name in names_bound(node) for node in body)
    after = [node for node in body if node.lineno > line]
    if not stored and any(name in names_read(node) for node in after):
        return True
    return any(_reads_item(loop, name, target.id, write.place, line) for loop in _loops_over(body, name))


def _loops_over(body: list[ast.stmt], name: str) -> list[ast.For]:
    """The loops over an argument that holds several tensors: `for d, x in zip(dims, xs)`."""
    loops = [n for statement in body for n in ast.walk(statement) if isinstance(n, ast.For)]
    return [loop for loop in loops if name in {n.id for n in ast.walk(loop.iter) if isinstance(n, ast.Name)}]


def _reads_item(loop: ast.For, name: str, written: str, place: ast.AST, line: int) -> bool:
    """Whether a round of a loop reads its item after the write, which was made by another name."""
    given = [loop.iter] if isinstance(loop.iter, ast.Name) else getattr(loop.iter, "args", [])
    at = [i for i, n in enumerate(given) if isinstance(n, ast.Name) and n.id == name]
    items = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    zipped = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "zip"
    if len(at) != 1 or not (zipped or len(items) == 1) or len(items) != len(given) or not _holds(loop, place):
        return False
    item = items[at[0]]
    if not isinstance(item, ast.Name) or item.id == written or any(item.id in names_bound(n) for n in loop.body):
        return False
    return any(item.id in names_read(n) for n in loop.body if n.lineno > line)


def _holds(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def blank(storage: Storage) -> bool:
    """Whether memory was made to be filled."""
    return storage.kind == "fresh" and storage.made_by in _BLANKS


def public(info: FunctionInfo) -> bool:
    return not info.name.startswith("_") and not (info.owner is not None and info.owner.name.startswith("_"))

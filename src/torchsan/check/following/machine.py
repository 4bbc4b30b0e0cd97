"""The abstract machine: time, memory, the graph, and the facts that come out of writes and backward."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchsan.check.facts import Fact
from torchsan.check.modelling.names import SHAPE_ONLY
from torchsan.check.modelling.values import (
    ONCE,
    Answers,
    Grad,
    Node,
    Optimizer,
    Save,
    Storage,
    Tensor,
    Write,
    parameters_of,
)
from torchsan.check.reading.program import Program
from torchsan.check.telling.teller import Teller
from torchsan.effects import OpEffects


class PathEnded(Exception):
    """The program would raise here, or the budget is spent: nothing more on this path."""


class CallCutShort(Exception):
    """A callee took more statements than it is worth: its result is not known."""


def asks_itself(place: ast.AST) -> bool:
    """Whether a write to some elements chooses them by what they are."""
    target = place.targets[0] if isinstance(place, ast.Assign) else getattr(place, "target", None)
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Compare):
        return False
    return ast.unparse(target.slice.left) == ast.unparse(target.value)


class Machine:
    """State of one path through the program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.clock = 0
        # "grad", "no_grad", "inference", or "unsure" when a switch was not understood
        self.mode = "grad"
        self.facts: list[Fact] = []
        self.tell = Teller(program)
        # Whether memory that an op keeps was written: only then can another path show more.
        self.touched = False
        # Calls of backward that were seen.
        self.backwards = 0
        # Whether an object gave out what an earlier backward has used up, and whether somebody who may have put it back
        # was given the object since.
        self.carried = self.perhaps_reset = self.said_reset = False
        # Whether a function is followed without the program that calls it, and is a method that others have to call.
        self.alone = self.helper = False
        # Answers that this path took without the source deciding them, of the branches that it is in.
        self.inside: Answers = ()
        # Whether a test, not decided by the source, was passed that would have raised an error.
        self.guarded = False
        # Writes to memory that belongs to the caller or is kept by the object, and to other memory, by place.
        # Tensors that were put into objects: the caller may go on from there.
        self.kept: list[Tensor] = []
        self.owned: list[tuple[Tensor, Write]] = []
        # Calls of backward that had a graph to walk, as far as is known.
        self.walked: set[ast.AST] = set()

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def switch(self, mode: str) -> None:
        """Another grad mode; inside of inference mode none of them makes tensors that are not of it."""
        if self.mode != "inference":
            self.mode = mode

    # --- making tensors -----------------------------------------------------------------------------

    def unknown(self, parents: Iterable[Tensor] = (), place: ast.AST | None = None, *, passes: bool = True) -> Tensor:
        """A value of which nothing is known, but that may hang on these tensors' graphs."""
        given = list(parents) if self.mode in ("grad", "unsure") else []
        before = [n for t in given for n in t.nodes()]
        leaves = [s for t in given for s in t.leaf_memory]
        node = Node("", place, before, passes=passes, leaves=leaves) if (before or leaves) and place else None
        return Tensor(Storage("unknown"), Grad.MAYBE, node, sure=False, place=place)

    def fresh(self, place: ast.AST, op: str, *, grad: Grad = Grad.NO, leaf: bool = False) -> Tensor:
        made_in = "inference" if self.mode == "inference" else "grad"
        return Tensor(Storage(made_by=op), grad, leaf=leaf, place=place, op=op, made_in=made_in)

    def view_of(self, base: Tensor, place: ast.AST, op: str, kind: str = "view") -> Tensor:
        root = base.base or base
        if base.view in ("several", "expanded", "stretched", "custom"):
            kind = base.view if kind == "view" else kind
        made_in = base.made_in if base.made_in == "inference" else self.mode
        node = None
        if self.mode in ("grad", "unsure") and base.nodes():
            node = Node(op, place, base.nodes())
        return Tensor(
            base.storage,
            base.grad,
            node,
            sure=True,
            view=kind,
            base=root,
            made_in=made_in,
            place=place,
            op=op,
            detached=base.detached,
            behind=base.behind,
            origin=base.origin or place,
        )

    # --- ops ----------------------------------------------------------------------------------------

    def graded(self, bound: dict[str, list[Tensor]], least: Grad) -> set[str]:
        if self.mode not in ("grad", "unsure"):
            return set()
        if self.mode == "unsure" and least == Grad.YES:
            return set()
        return {name for name, given in bound.items() if any(t.wants_grad >= least for t in given)}

    def node_for(
        self, row: OpEffects, bound: dict[str, list[Tensor]], names: dict[str, ast.AST], place: ast.AST
    ) -> tuple[Node | None, Grad, set[str], set[str]]:
        """The graph node of an op with what it saves of its inputs, and whether its result has a gradient.

        With the names of the inputs that surely, and that perhaps, ask for a gradient.
        """
        maybe = self.graded(bound, Grad.MAYBE)
        if not maybe:
            return None, Grad.NO, maybe, maybe
        sure = self.graded(bound, Grad.YES)
        node = Node(row.name, place, [n for given in bound.values() for t in given for n in t.nodes()])
        node.leaves = [s for given in bound.values() for t in given for s in t.leaf_memory]
        for what, given in bound.items():
            if what in row.needs or what in row.may_need:
                for tensor in given:
                    self.save(node, row, what, tensor, sure, maybe, names.get(what))
        return node, Grad.YES if sure else Grad.MAYBE, sure, maybe

    def save(
        self,
        node: Node,
        row: OpEffects,
        what: str,
        tensor: Tensor,
        sure: set[str],
        maybe: set[str],
        name: ast.AST | None,
    ) -> None:
        certain = row.needed(what, sure)
        possible = row.needed(what, maybe) or not maybe.isdisjoint(row.may_need.get(what, ()))
        if certain and tensor.made_in == "inference":
            self.facts.append(self.tell.inference_saved(tensor, node, name))
            raise PathEnded
        if certain or possible:
            node.saves.append(Save(tensor.storage, self.clock, what, name, certain, self.inside))
            tensor.storage.saved = True

    # --- writes -------------------------------------------------------------------------------------

    def write(
        self,
        tensor: Tensor,
        node: ast.AST,
        op: str,
        target: ast.AST | None,
        *,
        values: Iterable[Tensor] = (),
        how: str = "op",
        origin: ast.AST | None = None,
        by_index: bool = False,
        row: OpEffects | None = None,
        bound: dict[str, list[Tensor]] | None = None,
        told: bool = False,
    ) -> None:
        """An in-place op on a tensor: the facts it makes by itself, then the new state of its memory."""
        place = node
        others = list(values)
        if tensor.behind:
            how = "behind"
        self.check_write(tensor, place, op, target, others, by_index, origin)
        time = self.tick()
        self.touched = self.touched or tensor.storage.saved or tensor.storage.kind == "argument"
        write = Write(place, time, how, op, target, origin, tensor.op == "numpy", self.inside, self.guarded)
        write.unseen = self.mode in ("no_grad", "inference")
        tensor.storage.writes.append(write)
        if tensor.storage.kind == "saved" and tensor.place is not None and how != "behind":
            self.facts.append(self.tell.saved_in_backward(tensor.storage, write, tensor.place))
        if not told and not (op in SHAPE_ONLY and tensor.base is not None):
            # `out=` says what it does. Another shape of a view is no other shape of what it is a view of.
            self.owned.append((tensor, write))
        if how == "behind" or self.mode in ("no_grad", "inference"):
            return
        self.rebase(tensor, place, op, others, row, bound)

    def perhaps_written(self, tensor: Tensor, place: ast.AST, op: str, target: ast.AST | None) -> None:
        """A write, if the value turns out to be a tensor: what is done with it afterwards may show that."""
        self.owned.append(
            (tensor, Write(place, self.tick(), "op", op, target, inside=self.inside, guarded=self.guarded))
        )

    def rebase(
        self,
        tensor: Tensor,
        place: ast.AST,
        op: str,
        others: list[Tensor],
        row: OpEffects | None,
        bound: dict[str, list[Tensor]] | None,
    ) -> None:
        """After a write the tensor, and all of its memory, has the write in its history."""
        grad = max([tensor.wants_grad, *(t.wants_grad for t in others)])
        if grad == Grad.NO:
            return
        if self.mode == "unsure":
            grad = Grad.MAYBE
        made = Node(op, place, [n for t in (tensor, *others) for n in t.nodes()])
        made.leaves = [s for t in (tensor, *others) for s in t.leaf_memory]
        if row is not None:
            given = {**(bound or {}), "input": [tensor]}
            sure, maybe = self.graded(given, Grad.YES), self.graded(given, Grad.MAYBE)
            for what, tensors in given.items():
                for other in tensors:
                    if what != "input":
                        self.save(made, row, what, other, sure, maybe, None)
            self.save(made, row, "out0", tensor, sure, maybe, None)
        tensor.node, tensor.grad = made, grad
        tensor.storage.history, tensor.storage.grad = made, grad

    def check_write(
        self,
        tensor: Tensor,
        place: ast.AST,
        op: str,
        target: ast.AST | None,
        others: list[Tensor],
        by_index: bool,
        origin: ast.AST | None,
    ) -> None:
        """Writes that torch refuses on the spot, and writes to memory seen several times."""
        if tensor.storage.kind == "default":
            sure = tensor.storage.name not in self.program.reassigned(tensor.storage.owner)
            self.facts.append(self.tell.default(tensor.storage, place, op, certain=sure))
        if tensor.made_in == "inference" and self.mode not in ("inference", "unsure"):
            self.refuse("inference", tensor, place, op, target, origin)
        if tensor.view == "stretched" and not tensor.behind and op not in SHAPE_ONLY:
            self.facts.append(self.tell.overlap(tensor, place, op, target, certain=False))
        if tensor.view == "expanded" and not tensor.behind and op not in SHAPE_ONLY:
            if not by_index:
                self.refuse("overlap", tensor, place, op, target, origin)
            # `x[x > 9] = 9`: what shares its memory is asked the same, and gets the same.
            self.facts.append(self.tell.overlap(tensor, place, op, target, certain=not asks_itself(place)))
        if self.mode != "grad" or tensor.behind or tensor.detached:
            return
        wants = tensor.wants_grad
        if tensor.leaf and wants == Grad.YES:
            self.refuse("leaf-view" if by_index else "leaf", tensor, place, op, target, origin)
        base = tensor.base
        if base is None:
            return
        any_grad = max([wants, *(t.wants_grad for t in others)])
        if any_grad == Grad.MAYBE and tensor.view == "several":
            fact = self.tell.refused("multi-view", tensor, place, op, target, origin, certain=False)
            self.facts.append(fact)
        if any_grad != Grad.YES:
            return
        if tensor.view == "several":
            self.refuse("multi-view", tensor, place, op, target, origin)
        if tensor.view == "custom":
            self.refuse("custom-function", tensor, place, op, target, origin)
        if tensor.made_in == "no_grad":
            self.refuse("no-grad-view", tensor, place, op, target, origin)
        if base.leaf and base.wants_grad == Grad.YES:
            self.refuse("leaf-view", tensor, place, op, target, origin)

    @property
    def may_be_new(self) -> bool:
        """Whether what modules kept of an earlier graph may have been given up since."""
        return self.said_reset or (self.carried and self.perhaps_reset)

    def refuse(
        self,
        reason: str,
        tensor: Tensor,
        place: ast.AST,
        op: str,
        target: ast.AST | None,
        maker: ast.AST | None = None,
    ) -> None:
        certain = not self.doubtful(reason, tensor)
        fact = self.tell.refused(reason, tensor, place, op, target, maker, certain=certain, inside=self.inside)
        self.facts.append(fact)
        raise PathEnded

    def doubtful(self, reason: str, tensor: Tensor) -> bool:
        """Whether a refusal hangs on something that this path does not show."""
        if any(condition == ONCE for condition, _ in self.inside):
            return True
        whole = tensor.base or tensor
        if whole.storage.handed:
            # Frozen there, perhaps, or replaced.
            return True
        if self.alone and self.helper and whole.storage.kind == "parameter":
            # A method that others call: perhaps on a branch on which no gradients are kept.
            return True
        frozen = whole.storage.kind == "parameter" and self.program.freezes and self.alone
        return reason in ("leaf", "leaf-view") and frozen

    def step(self, optimizer: Optimizer, node: ast.AST, target: ast.AST | None) -> None:
        place, time = node, self.tick()
        for parameter in parameters_of(optimizer):
            if self.backwards and not parameter.storage.has_gradient:
                # No backward has reached it since its gradient was cleared: the optimizer passes it by.
                continue
            # What was kept of them on another path may have moved.
            self.touched = True
            parameter.storage.writes.append(Write(place, time, "step", optimizer.name, target, inside=self.inside))

    def check_graph(self, roots: list[Tensor], node: ast.AST) -> None:
        """Backward of a value that surely has no graph."""
        for root in roots:
            if root.wants_grad == Grad.YES:
                self.facts += [self.tell.constant_term(cut, node) for cut in root.constants]
            cut = root.cut_at
            lost = root.sure and root.wants_grad == Grad.NO and not root.nodes() and root.storage.kind == "fresh"
            copied = root.leaf and root.op == "tensor" and cut is not None
            if (lost or copied) and self.mode == "grad":
                self.facts.append(self.tell.no_graph(root, node))
                raise PathEnded
        self.walked.add(node)

    # --- backward -----------------------------------------------------------------------------------

    def backward(self, roots: Iterable[Tensor], node: ast.AST | None, *, keep: bool) -> None:
        """Walk the graph as backward would: every value it needs must be as it was saved.

        Behind a function that is not known, and that may detach, nothing is sure.
        """
        starts = list(roots)
        if node is not None:
            self.check_graph(starts, node)
        pending = [(n, True) for t in starts for n in t.nodes()]
        reached: dict[Node, bool] = {}
        while pending:
            current, sure = pending.pop()
            sure = sure and current.passes
            if current in reached and reached[current] >= sure:
                continue
            reached[current] = sure
            if current.freed is not None:
                if sure and node is not None and any(save.certain for save in current.saves):
                    self.facts.append(self.tell.reused(current, current.freed, node, sure=not self.may_be_new))
                    raise PathEnded
                # An op that kept nothing can be walked again: what lies behind it decides.
                pending.extend((parent, sure) for parent in current.parents)
                continue
            for save in current.saves:
                written = save.storage.written_after(save.time)
                if written is not None:
                    self.facts.append(self.tell.stale(current, save, written, node, sure=sure))
            pending.extend((parent, sure) for parent in current.parents)
        if node is not None:
            self.backwards += 1
            for current in reached:
                for storage in current.leaves:
                    storage.has_gradient = True
        if not keep:
            for current, sure in reached.items():
                if sure and current.freed is None:
                    current.freed = node

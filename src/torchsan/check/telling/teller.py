"""Turn what happened on the abstract machine into the events that rules judge."""

from __future__ import annotations

import ast
import re
from typing import Any

from torchsan.check.facts import Fact
from torchsan.check.modelling.values import IN_TURN, ONCE, Answers, Node, Save, Snapshot, Storage, Tensor, Write
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.model import Certainty, Place, events

_SAVED_AS = {"out0": "result", "out1": "result1"}
MAX_WORDS = 40
# Names of what is handed over to be filled or brought up to date.
FOR_OUTPUT = re.compile(
    r"^(?:out|outs|output|outputs|result|results|res|ret|buffer|buffers|buf|cache|caches|state|states|memory|mem|dst|"
    r"dest|destination|acc|accumulator|grad|grads|gradient|gradients|tgt|param|params|parameter|weight|weights|module|"
    r"p|w|bias|model|self|cls|ctx|history|storage|workspace|scratch|total|totals|counts?|hist)$"
    r"|(?:dict|kwargs|config|cfg|storage)$|_(?:out|output|buffer|buf|cache|state|states|grad|grads|acc|weight|bias|ptr|"
    r"dest|dst|history|_pool|sum|avg)$|^(?:new|next|grad|grads)_"
)


def agree(first: Answers, second: Answers) -> bool:
    """Whether two things surely happen on one path of the program: at most one hangs on answers of its own.

    Flags that are set apart may still go together, or never: `if fast: keep(h)` and `if not train: h += 1`.
    """
    if any(condition == ONCE for condition, _ in second):
        return False
    if any(condition.startswith(IN_TURN) and (condition, answer) not in second for condition, answer in first):
        # `if i < last: x = act(x)`: after the loop it is the item without that counts.
        return False
    return set(first) <= set(second) or set(second) <= set(first)


class Teller:
    """Knows the file, and so places and words."""

    def __init__(self, program: Program) -> None:
        self.program = program
        # A function is followed without the program that calls it: some things then hang on the caller.
        self.alone = False

    @property
    def by_caller(self) -> Certainty:
        return "possible" if self.alone else "certain"

    def words(self, node: ast.AST | None) -> str:
        """An expression as the user wrote it; nothing for one that is too long to be a name."""
        shown = self.program.words(node) if node is not None else ""
        return shown if len(shown) <= MAX_WORDS and "(" not in shown else ""

    def line(self, node: ast.AST | None) -> events.Line | None:
        return None if node is None else events.Line(self.program.place(node))

    def place(self, node: ast.AST | None) -> Place | None:
        return None if node is None else self.program.place(node)

    def memory(self, storage: Storage, node: ast.AST | None) -> events.Memory:
        kind: Any = storage.kind if storage.kind in ("parameter", "buffer") else "tensor"
        return events.Memory(self.words(node) or storage.name, kind)

    def write(self, write: Write) -> events.Write:
        kind: Any = "op"
        op = write.op
        if write.how == "step":
            kind, op = "optimizer", f"{self.words(write.target) or 'optimizer'}.step"
        elif write.how == "behind":
            kind = "set_data" if op == ".data =" else "foreign" if write.foreign else "data"
        elif op == "[…] =":
            op = "__setitem__"
        return events.Write(op, kind, self.line(write.place))

    def stale(self, node: Node, save: Save, write: Write, needed: ast.AST | None, *, sure: bool) -> Fact:
        target = None if write.how == "step" else write.target
        event = events.StaleSave(
            memory=self.memory(save.storage, target),
            save=events.Save(node.op, _SAVED_AS.get(save.what, save.what), self.line(node.place)),
            write=self.write(write),
            needed=self.line(needed),
            silent=write.how == "behind",
            constructor=self.place(write.origin) if write.how == "op" else None,
        )
        certain = save.certain and sure and agree(save.inside, write.inside)
        # A linear layer keeps a transposed view, which stays with the old memory when a parameter is given another.
        certain = certain and not (write.op == ".data =" and node.op in ("nn.Linear", "linear"))
        if self.alone and save.storage.kind == "argument" and FOR_OUTPUT.search(save.storage.name):
            # A state that is handed over to be brought up to date: so decode those who need no gradient.
            certain = False
        inside = max(save.inside, write.inside, key=len)
        return Fact(event, self.program.place(write.place), "certain" if certain else "possible", inside)

    def refused(
        self,
        reason: Any,
        tensor: Tensor,
        place: ast.AST,
        op: str,
        target: ast.AST | None,
        maker: ast.AST | None,
        *,
        certain: bool = True,
        inside: Answers = (),
    ) -> Fact:
        made = tensor.origin if tensor.view else tensor.place
        custom = reason == "custom-function"
        event = events.RefusedWrite(
            reason=reason,
            memory=self.memory(tensor.storage, target),
            write=events.Write("__setitem__" if op == "[…] =" else op, "op", self.line(place)),
            origin=None if custom else self.line(maker or made),
            custom_write=self.line(tensor.origin) if custom else None,
        )
        return Fact(event, self.program.place(place), "certain" if certain else "possible", inside)

    def inference_saved(self, tensor: Tensor, node: Node, name: ast.AST | None) -> Fact:
        """Torch refuses to keep a tensor of inference mode for a gradient."""
        event = events.RefusedWrite(
            reason="inference",
            memory=self.memory(tensor.storage, name),
            write=events.Write(node.op, "op", self.line(node.place)),
            origin=self.line(tensor.place),
            text="Inference tensors cannot be saved for backward",
        )
        return Fact(event, self.program.place(node.place))

    def overlap(self, tensor: Tensor, place: ast.AST, op: str, target: ast.AST | None, *, certain: bool = True) -> Fact:
        event = events.OverlapWritten(
            self.memory(tensor.storage, target),
            events.Write(op, "op", self.line(place)),
            self.line(tensor.origin),
            copies=0,
        )
        return Fact(event, self.program.place(place), "certain" if certain else "possible")

    def snapshot(self, snapshot: Snapshot, step: Write, used: ast.AST, name: ast.AST | None) -> Fact:
        event = events.AliasedSnapshot(
            events.Memory(self.words(name)),
            self.line(snapshot.place),
            self.write(step),
            self.line(used),
            "state_dict",
        )
        return Fact(event, self.program.place(snapshot.place))

    def chosen(self, used: ast.Name, place: ast.Assign, step: Write) -> Fact:
        learnt = place.value
        while isinstance(learnt, ast.Call | ast.Attribute):
            # `w.detach()` is w.
            learnt = learnt.func if isinstance(learnt, ast.Call) else learnt.value
        event = events.AliasedSnapshot(
            events.Memory(used.id),
            self.line(place),
            self.write(step),
            self.line(used),
            "alias",
            self.words(learnt) or "the parameters",
        )
        return Fact(event, self.program.place(place))

    def difference(self, step: Write, node: ast.AST, name: ast.AST, other: ast.AST) -> Fact:
        event = events.AliasedSnapshot(
            events.Memory(self.words(other)),
            None,
            self.write(step),
            self.line(node),
            "difference",
            f"`{self.words(name)}`",
        )
        return Fact(event, self.program.place(node))

    def rewritten(self, tensor: Tensor, node: ast.AST, target: ast.AST, module: str) -> Fact:
        write = events.Write(".data =", "set_data", self.line(node))
        event = events.ParameterRewritten(self.memory(tensor.storage, target), write, f"`{module}`")
        return Fact(event, self.program.place(node), self.by_caller)

    def reused(self, node: Node, first: ast.AST, needed: ast.AST, *, sure: bool) -> Fact:
        event = events.GraphReused(node.op, self.line(node.place), self.line(needed), self.line(first))
        # What a module of another file keeps from call to call is known less well.
        foreign = getattr(node.place, "home", None) not in (None, self.program)
        return Fact(event, self.program.place(needed), self.by_caller if sure and not foreign else "possible")

    def no_graph(self, tensor: Tensor, node: ast.AST) -> Fact:
        """`node` is the backward that finds nothing to walk."""
        root: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = self.program.dotted(node.func).startswith("torch.")
            root = node.func.value if not named else node.args[0] if node.args else None
        words = self.words(root)
        event = events.GradientCut(events.Memory(words), self.line(tensor.cut_at), "no-graph", self.line(node))
        # Only what had a graph has surely lost it: a sum that starts from zero may have got its terms elsewhere.
        certain = (tensor.cut_at is not None or (tensor.firm and tensor.lost)) and not self.alone
        return Fact(event, self.program.place(tensor.cut_at or node), "certain" if certain else "possible")

    def loss_without_graph(self, node: ast.AST) -> Fact:
        value = getattr(node, "value", None)
        event = events.GradientCut(events.Memory(self.words(value) or "the loss"), self.line(node), "no-graph")
        return Fact(event, self.program.place(node))

    def saved_in_backward(self, storage: Storage, write: Write, node: ast.AST) -> Fact:
        """A custom backward writes to what its forward was given and saved."""
        event = events.StaleSave(
            memory=events.Memory(storage.name),
            save=events.Save(storage.owner, "saved tensor", self.line(node), custom=True),
            write=self.write(write),
            needed=None,
            silent=False,
            constructor=None,
        )
        return Fact(event, self.program.place(write.place), "certain", write.inside)

    def constant_term(self, cut: ast.Call, needed: ast.AST) -> Fact:
        value = cut.func.value if isinstance(cut.func, ast.Attribute) else cut
        event = events.GradientCut(
            events.Memory(self.words(value)),
            self.line(cut),
            "constant-term",
            self.line(needed),
            self.program.words(cut),
        )
        return Fact(event, self.program.place(cut), self.by_caller)

    def not_a_leaf(self, node: ast.AST) -> Fact:
        value = node.value if isinstance(node, ast.Attribute) else node
        event = events.GradientCut(events.Memory(self.words(value)), self.line(node), "non-leaf-grad")
        return Fact(event, self.program.place(node), self.by_caller)

    def kept_twice(self, write: Write, node: ast.AST, name: str, owner: str) -> Fact:
        event = events.AliasedSnapshot(
            events.Memory(name), self.line(node), self.write(write), None, "list", owner, entries=2
        )
        return Fact(event, self.program.place(node), self.by_caller)

    def owned(self, storage: Storage, write: Write, info: FunctionInfo, *, mixed: bool, certain: bool) -> Fact:
        name = self.words(write.target) or storage.name
        shown = f"{info.owner.name}.{info.name}" if info.owner is not None else info.name
        kind: Any = storage.kind
        event = events.OwnedWritten(events.Memory(storage.name or name), self.write(write), shown, kind, mixed)
        return Fact(event, self.program.place(write.place), "certain" if certain else "possible")

    def same_module(self, node: ast.AST, name: ast.AST, other: ast.AST) -> Fact:
        event = events.AliasedSnapshot(
            events.Memory(self.words(name)), self.line(node), None, None, "module", self.words(other)
        )
        return Fact(event, self.program.place(node))

    def default(self, storage: Storage, node: ast.AST, op: str, *, certain: bool) -> Fact:
        write = events.Write(op, "op", self.line(node))
        event = events.SharedDefaultWritten(events.Memory(storage.name), write, "default", storage.owner)
        return Fact(event, self.program.place(node), "certain" if certain else "possible")

    def input_overwritten(
        self, name: str, write: Write, called: ast.AST, read: ast.AST, callee: ast.AST, *, certain: bool
    ) -> Fact:
        event = events.InputOverwritten(
            events.Memory(name),
            self.write(write),
            events.Line(self.program.place(called)),
            self.program.place(read),
            self.words(callee) or "the call",
            self.place(write.origin),
        )
        return Fact(event, self.program.place(write.place), "certain" if certain else "possible")

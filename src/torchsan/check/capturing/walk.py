"""Follow a `forward`, the methods and parts that it calls, and gather what a capture would freeze."""

from __future__ import annotations

import ast
import re

from torchsan.check.capturing.calls import class_named
from torchsan.check.capturing.reader import Reader
from torchsan.check.capturing.values import DATA, OTHER, SEVERAL, Kind, Value, joined
from torchsan.check.modelling.names import PLAIN_ATTRIBUTES, PLAIN_METHODS, tensor_methods
from torchsan.check.reading.program import ClassInfo, FunctionInfo, Program
from torchsan.check.reading.project import Project

DEEPEST = 5
# Tests that ask how the program is run: the author has thought of captures.
ABOUT_CAPTURE = re.compile(r"trac|script|export|onnx|deploy|compil|jit|training|is_grad_enabled|requires_grad|debug")
_PLAIN_TYPES = re.compile(r"\b(?:bool|int|float|str|[Dd]ict|Any|Callable|dtype|device)\b")
_OF_TENSORS = PLAIN_ATTRIBUTES | PLAIN_METHODS | {"T", "data", "numpy"}


class Walk(Reader):
    """One module as it would run once, on every path that does not ask for captures."""

    def __init__(self, cls: ClassInfo, program: Program, project: Project | None, *, traced: bool = False) -> None:
        super().__init__(program)
        # A trace takes nothing but tensors.
        self.traced = traced
        self.cls = cls
        self.project = project
        self.depth = 0
        self.seen: set[tuple[int, tuple[Kind, ...]]] = set()
        self.methods: list[tuple[ClassInfo, FunctionInfo]] = []
        self.parts: list[ClassInfo] = [cls]
        self.results: list[Value] = []
        # Every draw with the file it stands in.
        self.drawn: list[tuple[Program, ast.Call]] = []

    def run(self) -> None:
        forward = self.cls.methods.get("forward")
        if forward is not None:
            self.result(self.method(self.cls, forward, None))

    def result(self, value: Value) -> None:
        for reading in value.readings:
            reading.use = reading.use or "number"

    # --- calls --------------------------------------------------------------------------------------

    def method(self, cls: ClassInfo, info: FunctionInfo, given: list[Value] | None) -> Value:
        """What a method returns, with values for its arguments, or with what the outside may give."""
        names = self.arguments(info, given, skip=1 if info.owner is not None else 0)
        key = (id(info.node), tuple(v.kind for v in names.values()))
        if self.depth >= DEEPEST or key in self.seen or isinstance(info.node, ast.Lambda) or info.generator:
            return OTHER
        self.seen.add(key)
        self.methods.append((cls, info))
        before = self.program, self.cls, self.results, self.draws
        self.program, self.cls, self.results, self.draws = info.program or self.program, cls, [], []
        self.depth += 1
        try:
            self.block(info.node.body, names)
            self.drawn += [(self.program, call) for call in self.draws]
            kinds = {v.kind for v in self.results}
            return joined(self.results) if len(kinds) != 1 else self.results[0]
        finally:
            self.program, self.cls, self.results, self.draws = before
            self.depth -= 1

    def arguments(self, info: FunctionInfo, given: list[Value] | None, skip: int) -> dict[str, Value]:
        spec = info.node.args
        positional = [*spec.posonlyargs, *spec.args]
        first = len(positional) - len(spec.defaults)
        names: dict[str, Value] = {}
        for index, argument in enumerate(positional[skip:]):
            if given is not None:
                names[argument.arg] = given[index] if index < len(given) else OTHER
                continue
            annotation = ast.unparse(argument.annotation) if argument.annotation is not None else ""
            required = index + skip < first
            plain = _PLAIN_TYPES.search(annotation) is not None
            tensor = (
                "Tensor" in annotation
                if annotation
                else required and used_as_tensor(info.node, argument.arg, self.traced)
            )
            names[argument.arg] = DATA if tensor and not plain else OTHER
        return names

    def called(self, node: ast.Call, args: list[Value], names: dict[str, Value]) -> Value:
        positional = args[: len(node.args)] if not any(isinstance(a, ast.Starred) for a in node.args) else []
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
            return self.of_self(called.attr, node, positional)
        function = self.function_named(node.func)
        if function is not None and not node.keywords:
            return self.method(self.cls, function, positional)
        return OTHER

    def of_self(self, name: str, node: ast.Call, args: list[Value]) -> Value:
        method = self.cls.methods.get(name)
        if method is not None:
            return self.method(self.cls, method, args) if not node.keywords and not method.decorators else OTHER
        made = self.cls.assigned.get(name)
        if not isinstance(made, ast.Call) or name in self.cls.built_up:
            return OTHER
        home = self.cls.program or self.program
        if home.dotted(made.func).startswith("torch.nn."):
            tensors = bool(args) and args[0].kind is Kind.DATA
            several = home.dotted(made.func).rpartition(".")[2] in ("LSTM", "GRU", "RNN", "MultiheadAttention")
            return (SEVERAL if several else DATA) if tensors else OTHER
        part = class_named(made.func, home, self.project)
        forward = part.methods.get("forward") if part is not None else None
        if part is None or forward is None:
            return OTHER
        if part not in self.parts:
            self.parts.append(part)
        return self.method(part, forward, args) if not node.keywords else OTHER

    def function_named(self, node: ast.expr) -> FunctionInfo | None:
        dotted = self.program.dotted(node)
        found = self.program.definition(dotted) if dotted and "." not in dotted else None
        home: Program = self.program
        if found is None and self.project is not None and "." in dotted:
            known = self.project.find(dotted)
            if known is not None:
                home, found = known
        if isinstance(found, ast.FunctionDef) and not found.decorator_list:
            return home.function(found)
        return None

    # --- statements ---------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], names: dict[str, Value]) -> bool:
        """Run statements; True when what comes after is not reached, or not known."""
        return any(self.statement(node, names) for node in body)

    def statement(self, node: ast.stmt, names: dict[str, Value]) -> bool:
        if isinstance(node, ast.Return):
            value = self.value(node.value, names)
            self.results.append(value)
            return True
        if isinstance(node, ast.Raise | ast.Continue | ast.Break):
            return True
        if isinstance(node, ast.If):
            return self.branch(node, names)
        if isinstance(node, ast.For):
            return self.loop(node, names)
        if isinstance(node, ast.While):
            self.steers(self.value(node.test, names), node.test, "branch")
            self.block(node.body, names)
        elif isinstance(node, ast.With):
            return self.block(node.body, names)
        elif isinstance(node, ast.Try):
            self.block(node.body, names)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, names)
            for target in node.targets:
                self.bind(target, value, names)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(node.target, self.value(node.value, names), names)
        elif isinstance(node, ast.AugAssign):
            before = self.value(node.target, names)
            self.bind(node.target, self.made_of([before, self.value(node.value, names)]), names)
        elif isinstance(node, ast.Expr):
            self.value(node.value, names)
        return False

    def bind(self, target: ast.expr, value: Value, names: dict[str, Value]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            kind = DATA if value.kind is Kind.SEVERAL else value if value.kind is Kind.SIZE else OTHER
            for item in target.elts:
                self.bind(item, kind, names)
        elif isinstance(target, ast.Subscript):
            self.value(target.slice, names)
            self.result(value)

    def branch(self, node: ast.If, names: dict[str, Value]) -> bool:
        if ABOUT_CAPTURE.search(ast.unparse(node.test)):
            # One of the ways is for captures, and nobody knows which: what is bound there may be anything.
            self.forget(node, names)
            return any(isinstance(n, ast.Return) for n in ast.walk(node))
        value = self.value(node.test, names)
        if not (_only_complains(node.body) and not node.orelse):
            self.steers(value, node.test, "branch")
        inside = dict(names)
        left = self.block(node.body, inside)
        other = dict(names)
        gone = self.block(node.orelse, other) if node.orelse else False
        ways = [way for way, ended in ((inside, left), (other, gone)) if not ended]
        for name in {n for way in ways for n in way}:
            kinds = {way[name].kind if name in way else Kind.OTHER for way in ways}
            names[name] = ways[0].get(name, OTHER) if len(kinds) == 1 else OTHER
        return left and gone

    def loop(self, node: ast.For, names: dict[str, Value]) -> bool:
        value = self.value(node.iter, names)
        if value.kind is Kind.DATA:
            self.note(node.iter, "shape", "iter").readings[0].use = "loop"
        elif value.kind in (Kind.SIZE, Kind.NUMBER):
            self.steers(value, node.iter, "loop")
        self.bind(node.target, DATA if value.is_data else OTHER, names)
        if value.is_data and isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Tuple):
            # zip: which of the names is a tensor is not known; enumerate counts, then tells.
            self.bind(node.target, OTHER, names)
            if self.program.dotted(node.iter.func) == "enumerate" and len(node.target.elts) == 2:
                self.bind(node.target.elts[1], DATA, names)
        inside = dict(names)
        self.block(node.body, inside)
        for name, known in inside.items():
            if name in names and names[name].kind is not known.kind:
                names[name] = OTHER
            elif name not in names:
                names[name] = known
        return False

    def forget(self, node: ast.AST, names: dict[str, Value]) -> None:
        for below in ast.walk(node):
            if isinstance(below, ast.Name) and isinstance(below.ctx, ast.Store):
                names[below.id] = OTHER


def _only_complains(body: list[ast.stmt]) -> bool:
    """Whether a branch only raises or warns: what a capture loses then is a complaint."""
    return all(
        isinstance(n, ast.Raise | ast.Pass)
        or (isinstance(n, ast.Expr) and re.match(r"warn|log|print|raise|self\.log", ast.unparse(n)) is not None)
        for n in body
    )


def used_as_tensor(node: ast.AST, name: str, likely: bool) -> bool:
    """Whether a function asks an argument only for what tensors have."""
    asked = {
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name
    }
    return (likely or bool(asked)) and asked <= tensor_methods() | _OF_TENSORS

"""Read the expressions of a `forward`: which values hang on the input's data or sizes."""

from __future__ import annotations

import ast

from torchsan.check.capturing.values import DATA, OTHER, SEVERAL, SIZE, Kind, Reading, Value, joined
from torchsan.check.modelling.names import FACTORIES, PLAIN_ATTRIBUTES, tensor_methods
from torchsan.check.reading.program import Program

_SIZES = frozenset({"size", "numel", "nelement", "__len__", "stride"})
_SEVERAL = frozenset({"split", "chunk", "unbind", "tensor_split", "hsplit", "vsplit", "unsafe_chunk", "unsafe_split"})
_READ_OUT = {"item": "item", "tolist": "tolist", "numpy": "numpy", "__bool__": "bool"}
_CASTS = frozenset({"float", "int", "bool", "round"})
_SAME_NUMBER = frozenset(
    {"min", "max", "abs", "sum", "round", "range", "enumerate", "zip", "reversed", "list", "tuple"}
)
_ASKS = frozenset({"is_tensor", "is_floating_point", "is_complex", "is_nonzero", "typename", "numel", "result_type"})
_KEEPS_VIEW = frozenset({"T", "mT", "H", "mH", "data", "real", "imag", "grad"})
_PYTHON_DRAWS = ("random.", "numpy.random.")
_NO_DRAWS = frozenset(
    {"seed", "get_state", "set_state", "setstate", "getstate", "default_rng", "RandomState", "Random"}
)


class Reader:
    """Values of expressions, with the names that are bound so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.readings: list[Reading] = []
        self.draws: list[ast.Call] = []

    def note(self, node: ast.AST, source: str, kind: str) -> Value:
        reading = Reading(node, self.program, source, kind=kind)
        self.readings.append(reading)
        return Value(Kind.NUMBER if source == "data" else Kind.SIZE, (reading,))

    def value(self, node: ast.expr | None, names: dict[str, Value]) -> Value:
        if node is None:
            return OTHER
        reader = getattr(self, f"value_{type(node).__name__}", None)
        if reader is None:
            for below in ast.iter_child_nodes(node):
                if isinstance(below, ast.expr):
                    self.value(below, names)
            return OTHER
        found: Value = reader(node, names)
        return found

    def value_Name(self, node: ast.Name, names: dict[str, Value]) -> Value:
        return names.get(node.id, OTHER)

    def value_Attribute(self, node: ast.Attribute, names: dict[str, Value]) -> Value:
        owner = self.value(node.value, names)
        if owner.kind is not Kind.DATA:
            return OTHER
        if node.attr == "shape":
            return SIZE
        if node.attr in PLAIN_ATTRIBUTES:
            return OTHER
        return DATA if node.attr in _KEEPS_VIEW else OTHER

    def value_Subscript(self, node: ast.Subscript, names: dict[str, Value]) -> Value:
        owner = self.value(node.value, names)
        self.value(node.slice, names)
        if owner.kind is Kind.SEVERAL:
            return SEVERAL if isinstance(node.slice, ast.Slice) else DATA
        return owner if owner.kind in (Kind.DATA, Kind.SIZE, Kind.NUMBER) else OTHER

    def value_BinOp(self, node: ast.BinOp, names: dict[str, Value]) -> Value:
        return self.made_of([self.value(node.left, names), self.value(node.right, names)])

    def made_of(self, values: list[Value]) -> Value:
        """A result: a number that meets a tensor has become part of what is computed."""
        result = joined(values)
        if result.kind is Kind.DATA:
            for value in values:
                for reading in value.readings:
                    reading.use = reading.use or "number"
        return result

    def value_UnaryOp(self, node: ast.UnaryOp, names: dict[str, Value]) -> Value:
        inner = self.value(node.operand, names)
        if isinstance(node.op, ast.Not) and inner.kind is Kind.DATA:
            return self.note(node.operand, "data", "bool")
        return inner

    def value_Compare(self, node: ast.Compare, names: dict[str, Value]) -> Value:
        values = [self.value(part, names) for part in (node.left, *node.comparators)]
        if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            return OTHER
        return joined(values)

    def value_BoolOp(self, node: ast.BoolOp, names: dict[str, Value]) -> Value:
        values = [self.value(part, names) for part in node.values]
        return joined([v if v.kind is not Kind.SEVERAL else OTHER for v in values])

    def value_IfExp(self, node: ast.IfExp, names: dict[str, Value]) -> Value:
        self.steers(self.value(node.test, names), node.test, "branch")
        return joined([self.value(node.body, names), self.value(node.orelse, names)])

    def steers(self, value: Value, node: ast.expr, use: str) -> None:
        """A test or a count: what it was made of has decided what runs."""
        if value.kind is Kind.DATA and use == "branch":
            self.note(node, "data", "bool").readings[0].use = use
        elif value.kind is Kind.SIZE and not value.readings:
            self.note(node, "shape", "size").readings[0].use = use
        for reading in value.readings:
            reading.use = use if reading.use != "loop" else reading.use

    def value_Tuple(self, node: ast.Tuple | ast.List, names: dict[str, Value]) -> Value:
        values = [self.value(item, names) for item in node.elts]
        if values and all(v.kind is Kind.DATA for v in values):
            return SEVERAL
        return OTHER if any(v.is_data for v in values) else joined(values)

    value_List = value_Tuple

    def value_Starred(self, node: ast.Starred, names: dict[str, Value]) -> Value:
        return self.value(node.value, names)

    def value_NamedExpr(self, node: ast.NamedExpr, names: dict[str, Value]) -> Value:
        names[node.target.id] = self.value(node.value, names)
        return names[node.target.id]

    def value_ListComp(self, node: ast.ListComp | ast.GeneratorExp, names: dict[str, Value]) -> Value:
        inner = dict(names)
        for part in node.generators:
            items = self.value(part.iter, inner)
            made = DATA if items.is_data else OTHER
            for name in (n for n in ast.walk(part.target) if isinstance(n, ast.Name)):
                inner[name.id] = made
        element = self.value(node.elt, inner)
        return SEVERAL if element.kind is Kind.DATA else OTHER

    value_GeneratorExp = value_ListComp

    def value_Call(self, node: ast.Call, names: dict[str, Value]) -> Value:
        args = [self.value(a, names) for a in node.args]
        args += [self.value(k.value, names) for k in node.keywords]
        dotted = self.program.dotted(node.func)
        if dotted.startswith(_PYTHON_DRAWS) and dotted.rpartition(".")[2] not in _NO_DRAWS:
            self.draws.append(node)
            return OTHER
        if dotted.startswith(("torch.", "torchvision.")) and dotted.count("."):
            return self.by_torch(dotted, args)
        if isinstance(node.func, ast.Name) and node.func.id not in names:
            return self.by_name(node, dotted, args, names)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value, names)
            if owner.kind is Kind.DATA:
                return self.by_method(node, node.func.attr, args)
            if dotted.startswith("math.") and any(a.kind is Kind.DATA for a in args):
                return self.note(node, "data", "item")
            if dotted.startswith("numpy.") and any(a.kind is Kind.DATA for a in args):
                return self.note(node, "data", "numpy")
            if dotted.startswith(("math.", "numpy.")):
                return joined(args)
        return self.called(node, args, names)

    def called(self, node: ast.Call, args: list[Value], names: dict[str, Value]) -> Value:
        """A part of the module or a function of the program; the walk knows more."""
        return OTHER

    def by_torch(self, dotted: str, args: list[Value]) -> Value:
        last = dotted.rpartition(".")[2]
        if last in _ASKS or dotted.startswith(("torch.jit.", "torch.compiler.", "torch.onnx.", "torch._")):
            return OTHER
        if last in FACTORIES and last not in ("tensor", "normal", "bernoulli") and not last.endswith("_like"):
            for value in args:
                for reading in value.readings:
                    reading.use = reading.use or "number"
            return DATA if any(v.kind is Kind.NUMBER for v in args) and last == "full" else OTHER
        if last in _SEVERAL:
            return SEVERAL if any(a.kind is Kind.DATA for a in args) else OTHER
        if last[:1].isupper() or not any(a.is_data for a in args):
            return OTHER
        return self.made_of([DATA, *args])

    def by_method(self, node: ast.Call, name: str, args: list[Value]) -> Value:
        if name in _SIZES:
            return SIZE
        if name in _READ_OUT:
            return self.note(node, "data", _READ_OUT[name])
        if name in _SEVERAL:
            return SEVERAL
        if name in ("dim", "is_contiguous", "get_device", "type", "element_size") or name.startswith("is_"):
            return OTHER
        return self.made_of([DATA, *args]) if name in tensor_methods() else OTHER

    def by_name(self, node: ast.Call, dotted: str, args: list[Value], names: dict[str, Value]) -> Value:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        first = args[0] if args else OTHER
        if name in _CASTS and first.kind is Kind.DATA:
            return self.note(node, "data", "item")
        if name in _CASTS and first.kind is Kind.SIZE and not first.readings:
            return self.note(node, "shape", "size")
        if name in _CASTS:
            return first
        if name == "len":
            return SIZE if first.kind is Kind.DATA else OTHER
        if name in ("list", "tuple", "reversed", "zip", "enumerate") and first.is_data:
            return SEVERAL
        if name in _SAME_NUMBER:
            return joined(args)
        return self.called(node, args, names)

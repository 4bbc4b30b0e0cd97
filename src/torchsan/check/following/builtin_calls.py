"""Functions by their name: Python's own, and those of libraries."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.following.parts import Parts
from torchsan.check.modelling.counting import rounds_from
from torchsan.check.modelling.names import (
    RUN_QUESTIONS,
    words,
)
from torchsan.check.modelling.values import (
    Instance,
    Layer,
    Library,
    Mapping,
    Plain,
    Sequence,
    Tensor,
    tensors_in,
)
from torchsan.check.reading.program import canonical

_BASIC_TYPES = frozenset({"Tensor", "list", "tuple", "dict", "set", "int", "float", "str", "bool"})
_PLAIN_BUILTINS = words(
    """print len range int float str bool isinstance issubclass hasattr repr format id hash type abs round ord
    chr callable dir open input divmod any all"""
)


class BuiltinCalls(Parts):
    """Calls of named functions."""

    def call_named(self, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        if name in RUN_QUESTIONS:
            return Plain(RUN_QUESTIONS[name], True)
        if name == "collections.OrderedDict" and not kwargs:
            return self.builtin_OrderedDict(args, node)
        if "." in name:
            return self.torch.call_library(canonical(name), args, kwargs, node)
        if name == "dict" and not args:
            return Mapping(dict(kwargs))
        builtin = getattr(self, f"builtin_{name}", None)
        if builtin is not None:
            return builtin(args, node)
        if name in _PLAIN_BUILTINS:
            return Plain()
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node, passes=False)

    def builtin_hasattr(self, args: list[Any], node: ast.Call) -> Any:
        """Who asks whether torch has something asks for its version: the one at hand has it."""
        known = bool(args) and isinstance(args[0], Library) and args[0].name.split(".")[0] == "torch"
        return Plain(True, True) if known else Plain()

    def builtin_isinstance(self, args: list[Any], node: ast.Call) -> Any:
        """Known for layers, tensors and lists."""
        if len(args) != 2:
            return Plain()
        kinds = args[1].items if isinstance(args[1], Sequence) else [args[1]]
        names = {k.name.rpartition(".")[2] for k in kinds if isinstance(k, Library)}
        if len(names) != len(kinds):
            return Plain()
        if isinstance(args[0], Layer) and not any(n in ("Module", "object") or n.startswith("_") for n in names):
            return Plain(args[0].name in names, True)
        if isinstance(args[0], Tensor) and args[0].sure and names <= _BASIC_TYPES:
            return Plain("Tensor" in names, True)
        if isinstance(args[0], Sequence) and names <= _BASIC_TYPES:
            return Plain(bool(names & {"list", "tuple", "set"}), True)
        return Plain()

    def builtin_range(self, args: list[Any], node: ast.Call) -> Any:
        known = [a.value for a in args if isinstance(a, Plain) and a.known and isinstance(a.value, int)]
        if len(known) == len(args) and 1 <= len(known) <= 2 and len(range(*known)) <= 4:
            return Sequence([Plain(i, True) for i in range(*known)])
        if len(args) == 1 or (len(args) == 2 and isinstance(args[0], Plain) and isinstance(args[0].value, int)):
            return Sequence(list(rounds_from(args[0].value if len(args) == 2 else 0, self.rounds)))
        return Sequence([Plain() for _ in range(self.rounds)])

    def builtin_zip(self, args: list[Any], node: ast.Call) -> Any:
        columns = [self.iterate(a, node) for a in args]
        return Sequence([Sequence(list(row)) for row in zip(*columns, strict=False)])

    def builtin_enumerate(self, args: list[Any], node: ast.Call) -> Any:
        items = self.iterate(args[0], node) if args else []
        counts = rounds_from(0, len(items)) if len(args) == 1 and not node.keywords else [Plain() for _ in items]
        return Sequence([Sequence([count, item]) for count, item in zip(counts, items, strict=False)])

    def builtin_list(self, args: list[Any], node: ast.Call) -> Any:
        return Sequence(self.iterate(args[0], node)) if args else Sequence([])

    builtin_tuple = builtin_list

    builtin_sorted = builtin_list

    builtin_iter = builtin_list

    builtin_set = builtin_list

    def builtin_reversed(self, args: list[Any], node: ast.Call) -> Any:
        return Sequence(self.iterate(args[0], node)[::-1]) if args else Sequence([])

    def builtin_next(self, args: list[Any], node: ast.Call) -> Any:
        items = self.iterate(args[0], node) if args else []
        return items[0] if items else self.machine.unknown()

    def builtin_dict(self, args: list[Any], node: ast.Call) -> Any:
        return args[0] if args and isinstance(args[0], Mapping) else Mapping()

    def builtin_OrderedDict(self, args: list[Any], node: ast.Call) -> Any:
        """`OrderedDict([("conv", conv), …])`; what is added later comes by key."""
        made = Mapping(dict(args[0].items) if args and isinstance(args[0], Mapping) else {})
        pairs = args[0].items if args and isinstance(args[0], Sequence) else []
        for index, pair in enumerate(pairs):
            if not isinstance(pair, Sequence) or len(pair.items) != 2:
                return self.machine.unknown(tensors_in(args[0]), node)
            key = pair.items[0]
            known = isinstance(key, Plain) and key.known and isinstance(key.value, str | int)
            made.items[key.value if known else ("?", index)] = pair.items[1]
        return made if pairs or not args or made.items else self.machine.unknown()

    def builtin_sum(self, args: list[Any], node: ast.Call) -> Any:
        items = self.iterate(args[0], node) if args else []
        total: Any = items[0] if items else Plain()
        for item in items[1:]:
            total = self.binary(ast.Add(), total, item, node)
        return total

    def builtin_max(self, args: list[Any], node: ast.Call) -> Any:
        if all(isinstance(a, Plain) for a in args):
            return Plain()
        return self.machine.unknown([t for a in args for t in tensors_in(a)], node)

    builtin_min = builtin_max

    def builtin_getattr(self, args: list[Any], node: ast.Call) -> Any:
        if len(args) > 1 and isinstance(args[1], Plain) and isinstance(args[1].value, str):
            return self.attribute(args[0], args[1].value, node)
        return self.machine.unknown()

    def builtin_setattr(self, args: list[Any], node: ast.Call) -> Any:
        if len(args) > 2 and isinstance(args[0], Instance) and isinstance(args[1], Plain) and args[1].known:
            args[0].attributes[str(args[1].value)] = args[2]
        return Plain()

    def builtin_map(self, args: list[Any], node: ast.Call) -> Any:
        if len(args) != 2:
            return self.machine.unknown()
        return Sequence([self.call_value(args[0], [item], {}, node) for item in self.iterate(args[1], node)])

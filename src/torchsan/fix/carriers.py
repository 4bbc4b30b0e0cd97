"""By which names code may get at an object that was made in one place: from the source alone, rather too many.

A layer that is made in a constructor goes on as an argument, is kept as an attribute, put into a list, handed out by a
function; whoever says one of these names may mean it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchsan.effects import lookup
from torchsan.fix.linked import names
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Function, Source

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOBODY = {"self", "cls", "super", "torch", "nn", "F"}
# Methods that give the object itself, or what is in a container.
GIVING = {*("to", "eval", "train", "cuda", "cpu", "float", "double", "half", "requires_grad_", "apply")}
GIVING |= {*("get", "pop", "values", "items", "children", "modules", "copy", "setdefault", "named_children")}
# Functions of libraries that only ask: what they give back is neither the object nor around it.
ASKING = {*("print", "len", "isinstance", "type", "id", "hash", "str", "repr", "hasattr", "callable", "issubclass")}
# Those of torch that give back what they are given, or something around it.
AROUND = {"compile", "script", "trace", "checkpoint", "vmap", "deepcopy"}
# Ways to get at something by a name that no source tells.
BY_NAME = {
    "getattr",
    "globals",
    "locals",
    "vars",
    "eval",
    "methodcaller",
    "attrgetter",
    "get_submodule",
    "import_module",
}
MOST_ROUNDS = 12


class Carriers:
    """`names`: variables, attributes and keys. Begins with names of functions, or with calls that make an object."""

    def __init__(
        self, sources: Iterable[Source], *, known_as: Iterable[str] = (), made: Iterable[ast.AST] = ()
    ) -> None:
        self.sources = list(sources)
        self.names = set(known_as) - NOBODY
        self._made = {id(node) for node in made}
        # Methods that were edited: those who inherit call them by `super()`.
        self.methods: set[str] = set()
        # Functions that give it back.
        self._givers: set[str] = set()
        self._functions: dict[str, list[tuple[Function, int]]] = {}
        # Classes that take over somebody else's constructor.
        self._heirs: set[str] = {"__init__"}
        self._bases: dict[str, set[str]] = {}
        self._fields: dict[str, set[str]] = {}
        for source in self.sources:
            for node in ast.walk(source.tree):
                self._define(source, node)
        self._nodes = [(source, list(ast.walk(source.tree))) for source in self.sources]
        for _ in range(MOST_ROUNDS):
            known = len(self.names) + len(self._givers) + len(self._made)
            for source, nodes in self._nodes:
                for node in nodes:
                    self._follow(source, node)
            if len(self.names) + len(self._givers) + len(self._made) == known:
                break

    def _define(self, source: Source, node: ast.AST) -> None:
        if isinstance(node, Function):
            method = isinstance(source.parents.get(node), ast.ClassDef)
            still = any("static" in ast.unparse(one) for one in node.decorator_list)
            self._functions.setdefault(node.name, []).append((node, int(method and not still)))
        elif isinstance(node, ast.ClassDef):
            makers = [n for n in node.body if isinstance(n, Function) and n.name == "__init__"]
            self._bases.setdefault(node.name, set()).update(*(names(base) for base in node.bases))
            self._functions.setdefault(node.name, []).extend((maker, 1) for maker in makers)
            if not makers:
                self._heirs.add(node.name)
                fields = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
                self._fields[node.name] = {t.id for t in fields if isinstance(t, ast.Name)}

    def carry(self, node: ast.AST | None) -> bool:
        """May this expression be the object, or a container that has it?"""
        if id(node) in self._made:
            return True
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute):
            return node.attr in self.names
        if isinstance(node, (ast.Subscript, ast.Starred, ast.Await)):
            return self.carry(node.value)
        if isinstance(node, ast.Call):
            return self._call_carries(node)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return any(self.carry(one) for one in node.elts)
        if isinstance(node, ast.Dict):
            return any(self.carry(one) for one in node.values)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self.carry(node.elt)
        if isinstance(node, ast.DictComp):
            return self.carry(node.value)
        if isinstance(node, ast.IfExp):
            return self.carry(node.body) or self.carry(node.orelse)
        if isinstance(node, ast.BoolOp):
            return any(self.carry(one) for one in node.values)
        if isinstance(node, ast.NamedExpr):
            return self.carry(node.value)
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, (ast.Add, ast.Mult)) and (self.carry(node.left) or self.carry(node.right))
        return isinstance(node, ast.Lambda) and self.carry(node.body)

    def _call_carries(self, call: ast.Call) -> bool:
        name = syntax.called(call)
        if name in self._givers:
            return True
        if name in GIVING and isinstance(call.func, ast.Attribute):
            return self.carry(call.func.value)
        if name == "getattr":
            return any(isinstance(a, ast.Constant) and a.value in self.names for a in call.args)
        if name in self._functions:
            return False  # followed by its parameters
        given = [*call.args, *(k.value for k in call.keywords)]
        if name == "Sequential":
            return any(self.carry(one) and not works_on_new_memory(given, place) for place, one in enumerate(given))
        # Constructors and functions of libraries may keep what they are given, or wrap it; calls of it do not.
        of_torch = syntax.root_name(call.func) in ("torch", "F") and not name[:1].isupper() and name not in AROUND
        keeps = name not in ASKING and not of_torch and not self.carry(call.func)
        return keeps and any(self.carry(one) for one in given)

    def may_be(self, called: ast.expr) -> bool:
        """May a call of this expression be one of the object? So it is of what nobody can tell from the source."""
        if self.carry(called):
            return True
        inner = called
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        if not isinstance(inner, ast.Call) or syntax.called(inner) not in BY_NAME:
            return False
        said = [a.value for a in inner.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        return not said or bool(set(said) & self.names)

    def _follow(self, source: Source, node: ast.AST) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if self.carry(node.value):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._bind(target)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            if self.carry(node.iter):
                self._bind(node.target)
        elif isinstance(node, ast.withitem):
            if node.optional_vars is not None and self.carry(node.context_expr):
                self._bind(node.optional_vars)
        elif isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)):
            statement = source.statement_of(node)
            maker = source.function_of(statement) if statement is not None else None
            if maker is not None and maker.name != "__init__" and self.carry(node.value):
                self._givers.add(maker.name)
                if maker.decorator_list:
                    self.names.add(maker.name)
        elif isinstance(node, ast.Call):
            self._hand_over(node)
            if self.may_be(node.func):
                self._passed_on(source, node)

    def _passed_on(self, source: Source, call: ast.Call) -> None:
        """A function that hands its own argument on to a call of it does the same to that argument."""
        around = next((n for n in source.above(call) if isinstance(n, (*FUNCTIONS, ast.Lambda))), None)
        if around is None:
            return
        own = {a.arg for a in ast.walk(around.args) if isinstance(a, ast.arg)} - NOBODY
        if not any(syntax.root_name(one) in own for one in (*call.args, *(k.value for k in call.keywords))):
            return
        if isinstance(around, ast.Lambda):
            self._made.add(id(around))
            return
        owner = source.parents.get(around)
        if isinstance(owner, ast.ClassDef) and around.name in ("forward", "__call__"):
            self._givers |= {owner.name, *self._subclasses(owner.name)}
            self.methods.add(around.name)
        elif not around.name.startswith("__"):
            self.names.add(around.name)
            self.methods.add(around.name)

    def _subclasses(self, name: str) -> set[str]:
        found = {name}
        for _ in range(4):
            found |= {heir for heir, bases in self._bases.items() if bases & found}
        return found

    def _hand_over(self, call: ast.Call) -> None:
        name = syntax.called(call)
        handed = [*enumerate(call.args), *((k.arg, k.value) for k in call.keywords)]
        for place, value in handed:
            if not self.carry(value):
                continue
            self.names |= self._fields.get(name, set())
            makers = self._functions.get("__init__" if name in self._heirs else name)
            if makers is not None:
                for function, skipped in makers:
                    self._give(function, place, skipped)
                if isinstance(place, str):
                    self.names.add(place)
            elif isinstance(call.func, ast.Attribute):
                self._bind(call.func.value)
            if name in ("setattr", "add_module", "register_module", "setdefault"):
                self.names |= {a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}

    def _give(self, function: Function, place: int | str | None, skipped: int) -> None:
        """The parameter that gets the argument at this place; all, where it is one of many."""
        parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        rest = [a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None]
        if isinstance(place, int) and place + skipped < len(parameters):
            self.names.add(parameters[place + skipped])
        elif isinstance(place, str):
            self.names.update([place], rest)
        else:
            self.names.update(parameters, rest)
        self.names -= NOBODY

    def _bind(self, target: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._bind(one)
        elif isinstance(target, (ast.Subscript, ast.Starred)):
            self._bind(target.value)
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                self.names |= {target.slice.value} if isinstance(target.slice.value, str) else set()
        elif isinstance(target, ast.Attribute):
            self.names |= {target.attr} - NOBODY
        elif isinstance(target, ast.Name):
            self.names |= {target.id} - NOBODY


def works_on_new_memory(layers: list[ast.expr], place: int) -> bool:
    """Inside a Sequential, behind a layer whose result is new: nobody outside sees what it is given."""
    before = layers[place - 1] if place else None
    if not isinstance(before, ast.Call) or any(k.arg == "inplace" for k in before.keywords):
        return False
    if any(syntax.is_true(argument) for argument in before.args):
        return False
    row = lookup(f"nn.{syntax.called(before)}")
    return row is not None and not (row.alias or row.may_alias or row.view or row.writes)

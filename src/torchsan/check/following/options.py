"""Whether the branches that lead to a finding are ever taken: options by their defaults, and by what the tree gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from torchsan.check.following.evaluation import evaluates
from torchsan.check.following.purposes import documentation_of
from torchsan.check.modelling.questions import for_use
from torchsan.check.modelling.values import IN_TURN, ONCE, Answers
from torchsan.check.reading.program import ClassInfo, FunctionInfo
from torchsan.check.reading.project import Project, text_of

MOST_FILES = 40
MOST_TEXT = 300_000
# Options handed on from one function to the next.
MOST_HOPS = 3
# Calls that gather options for somebody else.
_GATHER = frozenset({"dict", "partial", "update", "setdefault", "add_argument"})


def taken(inside: Answers, functions: list[FunctionInfo], project: Project | None) -> bool:
    """Whether each answer is that of the defaults, or of an option that somebody offers or sets, or hangs on data."""
    asked = [(c, a) for c, a in inside if c != ONCE and not c.startswith(IN_TURN)]
    return all(_may_be(condition, answer, functions, project) for condition, answer in asked)


def _may_be(condition: str, answer: bool, functions: list[FunctionInfo], project: Project | None) -> bool:
    if for_use(condition, answer):
        return False
    test = _expression(condition)
    if test is None:
        return True
    options = Options(functions)
    usual = options.truth(test)
    if usual is None or usual is answer:
        return True
    return any(
        _is_offered(info, name) or _is_set(info, name, default, project) for info, name, default in options.asked
    )


def _is_offered(info: FunctionInfo, name: str) -> bool:
    """Whether the documentation tells users of an option, and not for use without training."""
    told = documentation_of(info, name)
    return told != "" and not for_use(told, True)


@lru_cache(maxsize=4096)
def _expression(condition: str) -> ast.expr | None:
    try:
        return ast.parse(condition, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Unknown(Exception):
    """What the defaults do not tell."""


class Options:
    """The arguments of some functions, and of the classes that they belong to, as their defaults have them."""

    def __init__(self, functions: list[FunctionInfo]) -> None:
        self.functions = functions
        # The options that decided something: of which function, their name, and their default.
        self.asked: list[tuple[FunctionInfo, str, object]] = []

    def truth(self, test: ast.expr) -> bool | None:
        """The answer to a question when every option is left as it is; None where that is not known."""
        try:
            return bool(self._value(test, None, 0))
        except (_Unknown, TypeError, ValueError):
            return None

    def _value(self, node: ast.expr, within: FunctionInfo | None, hops: int) -> object:
        if hops > MOST_HOPS:
            raise _Unknown
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self._value(node.operand, within, hops)
        if isinstance(node, ast.BoolOp):
            return self._either(node, within, hops)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left = self._value(node.left, within, hops)
            return _compared(left, node.ops[0], self._value(node.comparators[0], within, hops))
        if isinstance(node, ast.Name):
            return self._argument(node.id, within)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._attribute(node.attr, hops)
        raise _Unknown

    def _either(self, node: ast.BoolOp, within: FunctionInfo | None, hops: int) -> bool:
        """`a and b` is settled by one side that is not so, whatever the other."""
        stop = isinstance(node.op, ast.Or)
        unknown = False
        for part in node.values:
            before = len(self.asked)
            try:
                if bool(self._value(part, within, hops)) is stop:
                    return stop
            except _Unknown:
                del self.asked[before:]
                unknown = True
        if unknown:
            raise _Unknown
        return not stop

    def _argument(self, name: str, within: FunctionInfo | None) -> object:
        for info in self.functions if within is None else [within]:
            default = defaults_of(info).get(name)
            if default is not None:
                if not isinstance(default, ast.Constant) or _bound(info, name):
                    raise _Unknown
                self.asked.append((info, name, default.value))
                return default.value
        raise _Unknown

    def _attribute(self, name: str, hops: int) -> object:
        """What `__init__` makes of its own arguments."""
        for owner in {id(i.owner): i.owner for i in self.functions if i.owner is not None}.values():
            start, value = owner.methods.get("__init__"), owner.settled(name)
            if start is not None and value is not None:
                return self._value(value, start, hops + 1)
        raise _Unknown


def _compared(left: object, op: ast.cmpop, right: object) -> bool:
    if isinstance(op, ast.Is):
        return left is right
    if isinstance(op, ast.IsNot):
        return left is not right
    if isinstance(op, ast.Eq):
        return left == right
    if isinstance(op, ast.NotEq):
        return left != right
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if numbers and isinstance(op, ast.Gt | ast.Lt | ast.GtE | ast.LtE):
        less, same = left < right, left == right  # type: ignore[operator]
        return bool({ast.Lt: less, ast.LtE: less or same, ast.Gt: not less and not same, ast.GtE: not less}[type(op)])
    raise _Unknown


@lru_cache(maxsize=1024)
def defaults_of(info: FunctionInfo) -> dict[str, ast.expr]:
    """The defaults of a function's arguments."""
    spec = info.node.args
    named = [*spec.posonlyargs, *spec.args]
    found = dict(zip((a.arg for a in named[::-1]), spec.defaults[::-1], strict=False))
    found.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None})
    return found


@lru_cache(maxsize=1024)
def _stored(info: FunctionInfo) -> list[str]:
    return [n.id for n in ast.walk(info.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _bound(info: FunctionInfo, name: str) -> bool:
    return name in _stored(info)


def _is_set(info: FunctionInfo, name: str, default: object, project: Project | None, hops: int = 0) -> bool:
    """Whether somebody in the tree gives another value than the default."""
    if project is None:
        # A text by itself shows no callers.
        return True
    called = info.owner.name if info.owner is not None and info.name == "__init__" else info.name
    if info.name in ("forward", "__call__"):
        # Objects are called by any name.
        called = ""
    # Given by place, an option is not named.
    speak = {
        **dict(project.mentions(name)[:MOST_FILES]),
        **(dict(project.mentions(called)[:MOST_FILES]) if called else {}),
    }
    for path, text in speak.items():
        # A test that sets an option shows that it is there to be set.
        if len(text) < MOST_TEXT:
            for given, around in _given(path, called, name, _position(info, name)):
                if around is not None and evaluates(path, around.name):
                    continue
                if _differs(given, default, name, around, project, hops):
                    return True
    return False


def _differs(
    given: ast.expr, default: object, name: str, around: FunctionInfo | None, project: Project, hops: int
) -> bool:
    if isinstance(given, ast.Constant):
        return given.value != default or type(given.value) is not type(default)
    handed_on = around is not None and isinstance(given, ast.Name) and not _bound(around, given.id)
    if around is None or not handed_on or not isinstance(given, ast.Name):
        return True
    # `Block(skip=skip)`: it is as the caller has it.
    before = defaults_of(around).get(given.id)
    if before is None or hops >= MOST_HOPS:
        return before is None and given.id != name
    if isinstance(before, ast.Constant) and before.value == default:
        return _is_set(around, given.id, default, project, hops + 1)
    return True


def _position(info: FunctionInfo, name: str) -> int:
    spec = info.node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    if name not in names:
        return 1 << 10
    return names.index(name) - (info.owner is not None and "staticmethod" not in info.decorators)


@lru_cache(maxsize=512)
def _given(path: str, called: str, name: str, position: int) -> tuple[tuple[ast.expr, FunctionInfo | None], ...]:
    """What the calls of a file give for an argument, each with the function around it."""
    found: list[tuple[ast.expr, FunctionInfo | None]] = []
    for call, around in _calls(path):
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        own = last == called
        if own or not called or last in _GATHER or last == "__init__":
            found += [(k.value, around) for k in call.keywords if k.arg == name]
        if own and position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
            found.append((call.args[position], around))
        if last == "add_argument" and any(_spells(option, name) for option in call.args):
            found.append((call, None))
    return tuple(found)


def _spells(option: ast.expr, name: str) -> bool:
    """Whether `"--drop-path"` is an option by the name of `drop_path`."""
    return isinstance(option, ast.Constant) and str(option.value).lstrip("-").replace("-", "_") == name


@lru_cache(maxsize=32)
def _calls(path: str) -> tuple[tuple[ast.Call, FunctionInfo | None], ...]:
    try:
        tree = ast.parse(text_of(path))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_below(tree, None, None))


def _below(
    node: ast.AST, around: FunctionInfo | None, owner: ClassInfo | None
) -> Iterator[tuple[ast.Call, FunctionInfo | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _below(child, None, ClassInfo(child.name, child, ()))
        elif isinstance(child, ast.FunctionDef):
            yield from _below(child, FunctionInfo(child.name, child, owner), None)
        else:
            if isinstance(child, ast.Call):
                yield child, around
            yield from _below(child, around, owner)

"""Who calls a function, and what becomes of the tensor that it was given."""

from __future__ import annotations

import ast
import os
import re
from enum import Enum
from functools import lru_cache

from torchsan.check.following.blocks import NO_VALUES, comes_after
from torchsan.check.modelling.names import tensor_methods
from torchsan.check.reading.outline import body_of, outline_of
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.check.reading.project import Project
from torchsan.model.source import real_path

MOST_FILES = 12
_OWN_MEMORY = re.compile(r"\.clone\(|copy|\b(?:new_)?(?:zeros|ones|empty|full)(?:_like)?\(")
MOST_TEXT = 300_000


class Use(Enum):
    """What a caller does with the tensor after the call."""

    READ = "read again"
    READ_SOMETIMES = "called on some paths only, and read again there"
    FOR_EFFECT = "called for what it writes: its result is thrown away"
    FRESH = "made for the call, or replaced by its result"
    UNKNOWN = "called in ways that are not followed"
    HANDED_ON = "the caller's own argument"
    KEPT = "what an object keeps: handed over to be brought up to date, or to be read, which the call does not tell"


def uses_of(info: FunctionInfo, argument: str, program: Program, project: Project | None) -> set[Use]:
    """How the callers in the tree treat the tensor; empty when there are none."""
    if project is None:
        return set()
    names = {info.name}
    if is_registered(info):
        return {Use.UNKNOWN}
    if info.name in ("forward", "__call__"):
        # A module is called by the name that it was given.
        names = _held_as(info.owner.name, project) if info.owner is not None else set()
        if "" in names:
            return {Use.UNKNOWN}
    found: set[Use] = set()
    for name in names:
        if info.owner is not None and info.name == name:
            # Other classes may have a method of the same name.
            own = _uses_in(os.path.abspath(real_path(program.path)), name, info, argument)
            if own:
                return own
        for path, text in project.mentions(name)[:MOST_FILES]:
            if len(text) < MOST_TEXT and f"{name}(" in text and "test" not in os.path.basename(path):
                found |= _uses_in(path, name, info, argument)
    return found


def is_registered(info: FunctionInfo) -> bool:
    """Whether a decorator files it under a name: who asks for it by that name is written nowhere in the code."""
    around = [*info.decorators]
    if info.owner is not None:
        around += [ast.unparse(decorator) for decorator in info.owner.node.decorator_list]
    # `@register_checkpoint_hooks` files its methods, not itself.
    return any("regist" in name and "hook" not in name for name in map(str.lower, around))


def _held_as(owner: str, project: Project) -> set[str]:
    """Attributes and names that hold an object of a class; "" among them for one that is kept in a list."""
    found: set[str] = set()
    for path, text in project.mentions(owner)[:MOST_FILES]:
        if len(text) > MOST_TEXT or f"{owner}(" not in text or "test" in os.path.basename(path):
            continue
        bound: set[int] = set()
        for node in ast.walk(_tree(path, owner)):
            if isinstance(node, ast.Call) and _last(node.func) == owner and id(node) not in bound:
                found.add("")
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _last(node.value.func) == owner:
                # A statement comes before what is in it.
                bound.add(id(node.value))
                found |= {_last(t) for t in node.targets} - {""}
        # Handed on as a class: who makes the object, and calls it, is not known.
        if re.search(rf"(?:=|,|else|in|return|\[)\s*{owner}\b(?!\()", text):
            found.add("")
    return found


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@lru_cache(maxsize=256)
def _tree(path: str, word: str) -> ast.Module:
    """The definitions of a file that call something of this name."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        tops = [d for d in outline_of(text) if d.indent == 0]
        parts = [body_of(text, d) for d in tops if text.find(f"{word}(", d.start + 8 + len(d.name), d.end) >= 0]
        return ast.parse("\n".join(parts))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _uses_in(path: str, name: str, info: FunctionInfo, argument: str) -> set[Use]:
    found: set[Use] = set()
    for function in ast.walk(_tree(path, name)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            always = {id(s) for s in _simple(function.body, branches=False)}
            for statement in _simple(function.body):
                for node in ast.walk(statement):
                    if isinstance(node, ast.Call) and _last(node.func) == name and _may_be(node.func, info):
                        given = _given(node, info, argument)
                        if given is not None:
                            use = _use(function, statement, given, (node.end_lineno or 0, node.end_col_offset or 0))
                            sometimes = use == Use.READ and id(statement) not in always
                            found.add(Use.READ_SOMETIMES if sometimes else use)
    return found


def _may_be(called: ast.expr, info: FunctionInfo) -> bool:
    """`self.scale(x)` is not the function `scale` of a file."""
    if info.owner is not None and info.name not in ("forward", "__call__"):
        return isinstance(called, ast.Attribute)
    if info.owner is not None or not isinstance(called, ast.Attribute):
        return True
    # `boxes.scaled(x)` may be a function of a module that was imported, `x.transpose(0)` is not.
    return isinstance(called.value, ast.Name) and not _is_self(called) and info.name not in tensor_methods()


def _simple(body: list[ast.stmt], *, branches: bool = True) -> list[ast.stmt]:
    """Statements that hold no others; without `branches` not those below an `if`."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.If) and not branches:
            continue
        below = [b for b in (getattr(node, f, None) for f in ("body", "orelse", "finalbody")) if b]
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        if below:
            for part in below:
                found += _simple(part, branches=branches)
            for handler in getattr(node, "handlers", ()):
                found += _simple(handler.body, branches=branches)
        else:
            found.append(node)
    return found


def _given(call: ast.Call, info: FunctionInfo, argument: str) -> ast.expr | None:
    """The expression that a call gives for an argument."""
    for keyword in call.keywords:
        if keyword.arg == argument:
            return keyword.value
    names = [a.arg for a in (*info.node.args.posonlyargs, *info.node.args.args)]
    if argument not in names:
        return None
    index = names.index(argument) - (info.owner is not None and "staticmethod" not in info.decorators)
    return call.args[index] if 0 <= index < len(call.args) else None


def _use(
    function: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.stmt, given: ast.expr, called: tuple[int, int]
) -> Use:
    if any(ast.unparse(t) == ast.unparse(given) for t in _targets(statement)):
        # `d["x"] = f(d["x"])`
        return Use.FRESH
    part = ""
    while isinstance(given, ast.Subscript | ast.Attribute) and not _is_self(given):
        if isinstance(given, ast.Attribute) or isinstance(given.slice, ast.Constant):
            # `data["x"]`, `box.corners`: a thing of its own.
            part = ast.unparse(given)
        elif not any(isinstance(n, ast.Slice) for n in ast.walk(given.slice)):
            # `x[kept]`: a copy where a mask or several places are asked for.
            return Use.UNKNOWN
        given = given.value
    if isinstance(given, ast.Attribute):
        return Use.KEPT
    if not isinstance(given, ast.Name) or _rebinds(statement, given.id):
        return Use.FRESH
    if part.endswith(".grad") or (part and _kept_by_object(function, given.id)):
        return Use.KEPT
    named = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == given.id]
    if isinstance(statement, ast.Expr):
        return Use.FOR_EFFECT
    if _made_for_it(function, statement, given.id):
        return Use.FRESH
    shapes = {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr in NO_VALUES}
    # `f(x) if a else x`: one or the other.
    here = [] if any(isinstance(n, ast.IfExp) for n in ast.walk(statement)) else [statement]
    reached = [n for node in (*here, *(comes_after(function.body, statement) or ())) for n in ast.walk(node)]
    if part:
        # What else is taken of the whole tells nothing of the part.
        named = [n for n in named if n not in reached] + _parts(reached, given.id, part)
    later = sorted(
        (n for n in named if (n.lineno, n.col_offset) > called and id(n) not in shapes and n in reached),
        key=lambda n: (n.lineno, isinstance(n.ctx, ast.Load)),
    )
    if later and isinstance(later[0].ctx, ast.Load):
        return Use.READ
    arguments = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    bound = any(isinstance(n.ctx, ast.Store) for n in named)
    return Use.HANDED_ON if given.id in arguments and not bound else Use.FRESH


def gives_what_is_kept(owner: str, index: int, project: Project) -> bool:
    """Whether a method gives `Owner.apply` an attribute of its object, of which each call gets the same.

    A parameter is left to the graph: its layer mostly runs once for each of them.
    """
    for path, text in project.mentions(owner)[:MOST_FILES]:
        if len(text) > MOST_TEXT or f"{owner}.apply(" not in text:
            continue
        for node in ast.walk(_tree(path, f"{owner}.apply")):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{owner}.apply" and index < len(node.args):
                given = node.args[index]
                kept = isinstance(given, ast.Attribute) and _is_self(given)
                if kept and f"self.{given.attr} = nn.Parameter" not in text:  # type: ignore[attr-defined]
                    return True
    return False


def _kept_by_object(function: ast.AST, name: str) -> bool:
    """Whether a name is another one for what an object keeps: `state = self.state[p]`, `for g in self.groups`.

    Or what a method of its own hands out, of which the caller then takes a part.
    """
    for node in ast.walk(function):
        bound, value = (node.targets, node.value) if isinstance(node, ast.Assign) else ([], None)
        if isinstance(node, ast.For):
            bound, value = [node.target], node.iter
        if value is not None and any(isinstance(t, ast.Name) and t.id == name for t in bound):
            value = value.func if isinstance(value, ast.Call) else value
            while isinstance(value, ast.Subscript | ast.Attribute) and not _is_self(value):
                value = value.value
            if isinstance(value, ast.Attribute):
                return True
    return False


def _parts(reached: list[ast.AST], name: str, part: str) -> list[ast.Name]:
    """The names at the root of expressions that are the part, or the whole as it is."""
    found: list[ast.Name] = []
    taken: set[int] = set()
    for node in reached:
        if isinstance(node, ast.Subscript | ast.Attribute):
            root = node.value
            taken.add(id(root))
            if isinstance(root, ast.Name) and root.id == name and ast.unparse(node) == part:
                found.append(root)
    return found + [n for n in reached if isinstance(n, ast.Name) and n.id == name and id(n) not in taken]


def _made_for_it(function: ast.AST, statement: ast.stmt, name: str) -> bool:
    """Whether the name was last bound to a copy, or to memory that was made to be filled."""
    made = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Assign)
        and n.lineno < statement.lineno
        and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
    ]
    last = max(made, key=lambda n: n.lineno, default=None)
    return last is not None and _OWN_MEMORY.search(ast.unparse(last.value)) is not None


def _is_self(node: ast.Subscript | ast.Attribute) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _rebinds(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for t in _targets(statement) for n in ast.walk(t))


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []

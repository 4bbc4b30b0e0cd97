"""Whether a function is called only where a model is evaluated: nobody walks backward from there."""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache

from torchsan.check.reading.project import Project, text_of

# Callers of callers that are looked for.
MOST_HOPS = 3
MOST_FILES = 12
MOST_TEXT = 300_000
_EVALUATES = re.compile(r"\.eval\(\)|no_grad|inference_mode|set_grad_enabled\(False\)")
_FOR_USE = re.compile(r"infer|predict|generate|_test(?:_|$)|evaluate")
_TRAINS = re.compile(r"\.backward\(|autograd\.grad\(")


def only_evaluated(name: str, project: Project, hops: int = 0) -> bool:
    """Whether every function of the tree that calls one of this name evaluates, or is itself only called so."""
    callers = _callers(name, project)
    if not callers or len(callers) > MOST_FILES:
        return False
    return all(_evaluates(*caller) or (hops < MOST_HOPS and _led_to(caller, project, hops)) for caller in callers)


def only_given_in_use(function: str, argument: str, project: Project) -> bool:
    """Whether an argument that may be left out is given, in the tree, only by functions for use without training."""
    givers = [c for c in _callers(argument, project, keyword=True) if c[1] != function]
    return bool(givers) and all(_evaluates(*giver) for giver in givers)


def _led_to(caller: tuple[str, str], project: Project, hops: int) -> bool:
    _, name = caller
    # Everybody calls `forward`, and by another name.
    return name not in ("", "forward", "__call__", "__init__", "main") and only_evaluated(name, project, hops + 1)


def _callers(name: str, project: Project, *, keyword: bool = False) -> list[tuple[str, str]]:
    """Files and functions that call something of this name, or that give an argument of this name by keyword."""
    found: list[tuple[str, str]] = []
    for path, text in project.mentions(name)[:MOST_FILES]:
        written = f"{name}=" if keyword else f"{name}("
        if len(text) < MOST_TEXT and written in text and "test" not in os.path.basename(path):
            found += [(path, caller) for caller in _calling(path, name, keyword)]
    return found


@lru_cache(maxsize=64)
def _functions(path: str) -> tuple[ast.AST, ...]:
    try:
        tree = ast.parse(text_of(path))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return (tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)))


@lru_cache(maxsize=512)
def _calling(path: str, name: str, keyword: bool) -> tuple[str, ...]:
    """Names of the functions of a file in which the call stands; "" for the file's own statements."""
    found: dict[str, None] = {}
    inner: set[int] = set()
    for function in reversed(_functions(path)):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and id(node) not in inner and _is_it(node, name, keyword):
                inner.add(id(node))
                found.setdefault(getattr(function, "name", ""))
    return tuple(found)


def _is_it(call: ast.Call, name: str, keyword: bool) -> bool:
    if keyword:
        given = next((k.value for k in call.keywords if k.arg == name), None)
        return given is not None and not (isinstance(given, ast.Constant) and given.value is None)
    called = call.func
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == name


@lru_cache(maxsize=512)
def _evaluates(path: str, name: str) -> bool:
    """Whether a function turns a model, or gradients, off and walks no graph; or is named for use."""
    functions = [f for f in _functions(path) if getattr(f, "name", None) == name]
    if not functions:
        return False
    if _FOR_USE.search(name):
        return True
    shown = [ast.unparse(f) for f in functions]
    return all(_EVALUATES.search(text) is not None and _TRAINS.search(text) is None for text in shown)

"""Who calls a function: code that trains, or only code that evaluates, from where nobody walks backward."""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache

from torchsan.check.reading.program import ClassInfo, FunctionInfo
from torchsan.check.reading.project import Project, text_of
from torchsan.model.source import real_path

# Callers of callers that are looked for.
MOST_HOPS = 3
MOST_FILES = 12
MOST_TEXT = 300_000
_EVALUATES = re.compile(r"\.eval\(\)|no_grad|inference_mode|set_grad_enabled\(False\)")
_FOR_USE = re.compile(r"infer|predict|generate|_test(?:_|$)|evaluate")
_TRAINS = re.compile(r"\.backward\(|autograd\.grad\(|\.train\(\)")
_FOR_TRAINING = re.compile(r"train|loss|fit(?:_|$)|learn|update|step|criterion")
# Methods that run whenever an object is made or used.
_CALLED_BY_ALL = re.compile(
    r"^(?:__init__|__call__|forward|backward|training_step|_?(?:init|reset)_?(?:weights?|parameters))$"
)
# The file's own statements, and where programs begin.
ENTRIES = frozenset({"", "main"})
_OFF = re.compile(r"no_grad|inference_mode|set_grad_enabled\(False")
# Bases that tell nothing of who calls the methods of a class, or that keep no gradients.
_SAY_NOTHING = ("torch.nn.", "torch.optim.", "torch.utils.", "abc.", "enum.", "typing.", "collections.", "threading.")
_GRADIENTS_OFF = re.compile(r"^torch\.(?:autograd\.)?set_grad_enabled\(False\)", re.M)


def trained(info: FunctionInfo, project: Project | None) -> bool:
    """Whether code of the tree that keeps gradients leads to a function, as far as names tell.

    A text without a tree is all there is: what it defines is there to be trained.
    """
    if project is None:
        return True
    if not trains(project):
        return False
    if not waits_for_a_caller(info) or called_by_its_base(info, project):
        return True
    return _led_to(info.name, info.program.path if info.program else "", project, free=info.owner is None)


def keeps_gradients(info: FunctionInfo, project: Project | None) -> bool:
    """Whether somebody calls a function where gradients are kept: torch refuses some writes there, trained or not."""
    if project is None or not waits_for_a_caller(info):
        return True
    return bool(_callers(info.name, project, handed=info.owner is None))


def trains(project: Project) -> bool:
    """Whether anything in a tree is trained, or at least nothing in it only evaluated.

    A package of layers has no training loop of its own: where it gives them their first weights, others train them.
    """
    if any(project.mentions(word) for word in ("backward", "training_step", "optim", "Trainer")):
        return True
    if project.installed and project.mentions("init"):
        return True
    return not any(project.mentions(word) for word in ("no_grad", "inference_mode", "eval"))


def called_by_its_base(info: FunctionInfo, project: Project) -> bool:
    """Whether a method is there for a base outside of the tree to be called: nobody in the tree calls one by its name.

    `_call` of a `torch.distributions.Transform`, say. Where several classes have one, it is how they are used.
    """
    if info.owner is None or _FOR_USE.search(info.name) or not _from_outside(info.owner, project):
        return False
    # What a class calls of itself, or of the one below, is its own affair.
    called = re.compile(rf"(?<!self)(?<!super\(\))\.{re.escape(info.name)}\(")
    speak = [text for path, text in project.mentions(info.name)[:MOST_FILES] if "test" not in os.path.basename(path)]
    return not any(called.search(text) for text in speak)


def _from_outside(owner: ClassInfo, project: Project, hops: int = 0) -> bool:
    """Whether a class is built on one of a package, other than those that say nothing of how they are used."""
    for base in owner.bases:
        found = project.find(base)
        if found is None and "." in base and not base.startswith(_SAY_NOTHING):
            return True
        made = found[1] if found is not None else None
        if found is not None and isinstance(made, ast.ClassDef) and hops < MOST_HOPS:
            above = ClassInfo(made.name, made, tuple(found[0].dotted(b) for b in made.bases))
            if _from_outside(above, project, hops + 1):
                return True
    return False


def waits_for_a_caller(info: FunctionInfo) -> bool:
    """Whether a function runs neither when an object is made nor whenever it is used."""
    if info.owner is None:
        return info.name not in ENTRIES
    if _CALLED_BY_ALL.search(info.name):
        return False
    start = info.owner.methods.get("__init__")
    return start is None or f"self.{info.name}(" not in ast.unparse(start.node)


def _led_to(name: str, home: str, project: Project, hops: int = 0, *, free: bool = False) -> bool:
    """Whether a function by this name is called from code that trains, or that everybody calls."""
    callers = _callers(name, project, handed=free)
    if _ambiguous(name, project):
        # Whose callers are whose is only known where the definition is.
        callers = [c for c in callers if os.path.abspath(real_path(home)) == c[0]]
    return any(_is_trained(*caller, hops, project) for caller in callers)


def _is_trained(path: str, name: str, hops: int, project: Project) -> bool:
    if name in ENTRIES or _CALLED_BY_ALL.search(name) or _FOR_TRAINING.search(name):
        return True
    functions = [f for f in _functions(path) if getattr(f, "name", "") == name]
    if any(_TRAINS.search(ast.unparse(f)) for f in functions):
        return True
    # Everybody calls `forward`, and by another name; other methods are looked for by theirs.
    return hops < MOST_HOPS and name != "" and _led_to(name, path, project, hops + 1)


def reached_by_forward(name: str, project: Project, hops: int = 0) -> bool:
    """Whether the `forward` of some module leads to a function of this name, where gradients are kept."""
    names = {caller for _, caller in _callers(name, project)} - {name, "", "main", "__init__"}
    return "forward" in names or (hops < 2 and any(reached_by_forward(n, project, hops + 1) for n in sorted(names)[:6]))


def _ambiguous(name: str, project: Project) -> bool:
    return sum(text.count(f"def {name}(") for _, text in project.mentions(name)) > 1


def _callers(name: str, project: Project, *, handed: bool = False) -> list[tuple[str, str]]:
    """Files and functions that call something of this name where gradients may be kept, or that hand it on."""
    found: list[tuple[str, str]] = []
    for path, text in project.mentions(name)[:MOST_FILES]:
        if len(text) < MOST_TEXT and (handed or f"{name}(" in text) and "test" not in os.path.basename(path):
            found += [(path, caller) for caller in _calling(path, name, handed) if not evaluates(path, caller)]
    return found


@lru_cache(maxsize=64)
def _functions(path: str) -> tuple[ast.AST, ...]:
    try:
        tree = ast.parse(text_of(path))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return (tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)))


@lru_cache(maxsize=512)
def _calling(path: str, name: str, handed: bool) -> tuple[str, ...]:
    """Names of the functions of a file in which the call stands, but for blocks without gradients; "" for the file."""
    found: dict[str, None] = {}
    inner: set[int] = set()
    for function in reversed(_functions(path)):
        for node in ast.walk(function):
            if isinstance(node, ast.With | ast.AsyncWith) and _keeps_none([i.context_expr for i in node.items]):
                inner |= {id(n) for n in ast.walk(node)}
            elif isinstance(node, ast.Call) and id(node) not in inner:
                inner.add(id(node))
                if name not in [_last(part) for part in (node.func, *(node.args if handed else ()))]:
                    continue
                found.setdefault(getattr(function, "name", ""))
    return tuple(found)


def _last(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _keeps_none(around: list[ast.expr]) -> bool:
    return any(_OFF.search(ast.unparse(part)) for part in around)


@lru_cache(maxsize=512)
def evaluates(path: str, name: str) -> bool:
    """Whether a function turns a model, or gradients, off and walks no graph; or is named for use."""
    functions = [f for f in _functions(path) if getattr(f, "name", None) == name]
    if _GRADIENTS_OFF.search(text_of(path)) or _FOR_USE.search(name):
        return True
    if not functions:
        return False
    shown = [ast.unparse(f) for f in functions]
    off = all(_keeps_none(getattr(f, "decorator_list", [])) for f in functions)
    return off or all(_EVALUATES.search(text) is not None and _TRAINS.search(text) is None for text in shown)

"""Whether gradients with respect to what a function is given are wanted: who calls it may hand in such a tensor.

Nothing in a function tells whether its argument asks for a gradient. Where it is offered to others as a computation on
tensors, or a test of the tree walks backward through it, a caller may count on it.
"""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache

from torchsan.check.following.argument_kinds import used_as_tensors
from torchsan.check.following.evaluation import reached_by_forward, trains
from torchsan.check.following.said import documented
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.check.reading.project import Project

MOST_TEXT = 300_000
_IS_TENSOR = re.compile(r"^(?:Optional\[)?(?:torch\.)?(?:Float)?Tensor\b")
_WALKS = re.compile(r"gradcheck\(|\.backward\(|autograd\.grad\(")
# Functions that are there for data, pictures, figures or results, of which nobody asks for a gradient.
_FOR_NUMBERS = re.compile(
    r"infer|predict|generate|sample|decode|evaluat|metric|accuracy|plot|draw|visuali[sz]e|save|load|collate|encode_|"
    r"nms|assign|^to_|^from_|post_?process|pre_?process|token|mask|label|box|_score|^get_"
)
_KEEPS_NONE = re.compile(r"no_grad|inference_mode|numpy\(|\.detach\(|\.item\(|\.tolist\(|requires_grad")
# What is done with numbers of things and with places, not with what is computed.
_COUNTS = frozenset({"long", "int", "bool", "byte", "one_hot", "bincount", "unique", "nonzero", "scatter_"})


@lru_cache(maxsize=1024)
def asked_for(info: FunctionInfo, program: Program, project: Project | None) -> str:
    """The argument of which gradients are wanted; nothing where nobody is known to want any."""
    if project is None or isinstance(info.node, ast.Lambda) or not info.returns or _FOR_NUMBERS.search(info.name):
        return ""
    offered = not info.name.startswith("_") and (info.owner is None or info.name == "forward")
    name = _first(info) if offered else ""
    if not name or _KEEPS_NONE.search(ast.unparse(info.node)) or not trains(project):
        return ""
    called = info.owner.name if info.owner is not None else info.name
    offered = bool(program.package) and documented(info)
    return name if (offered and _in_a_layer(info, project)) or tested(called, project) else ""


def _in_a_layer(info: FunctionInfo, project: Project) -> bool:
    """Whether it is a loss, or the `forward` of a module leads to it. Tables are made once, with an object."""
    if info.owner is not None:
        return "loss" in info.owner.name.lower()
    return "loss" in info.name or reached_by_forward(info.name, project)


def _first(info: FunctionInfo) -> str:
    """The first argument that is a tensor to be computed with."""
    spec = info.node.args
    tensors = used_as_tensors(info)
    for argument in [*spec.posonlyargs, *spec.args][info.owner is not None :]:
        kind = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        if _IS_TENSOR.search(kind) or (not kind and argument.arg in tensors):
            return argument.arg if not _counted(info, argument.arg) else ""
    return ""


def _counted(info: FunctionInfo, name: str) -> bool:
    """Whether a tensor holds places, kinds or answers rather than what is computed."""
    for node in ast.walk(info.node):
        if isinstance(node, ast.Subscript) and _is(node.slice, name):
            return True
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq) and _is(node.left, name):
            return True
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert) and _is(node.operand, name):
            return True
        called = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if called is not None and called.attr in _COUNTS:
            given = (called.value, *node.args)  # type: ignore[attr-defined]
            if any(_is(part, name) for part in given):
                return True
    return False


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@lru_cache(maxsize=256)
def tested(name: str, project: Project) -> bool:
    """Whether a test of the tree walks backward through what it calls by this name."""
    for text in _walking(project):
        if name not in text:
            continue
        for part in re.split(r"\n(?=[ \t]*def )", text):
            if f"{name}(" in part and _WALKS.search(part):
                return True
            if re.search(rf"gradcheck\([^)]*\b{re.escape(name)}\b", part):
                return True
    return False


@lru_cache(maxsize=8)
def _walking(project: Project) -> tuple[str, ...]:
    """The tests of the tree in which something is walked backward."""
    speak = dict([*project.mentions("gradcheck"), *project.mentions("backward")])
    return tuple(t for p, t in speak.items() if "test" in os.path.basename(p) and len(t) < MOST_TEXT)

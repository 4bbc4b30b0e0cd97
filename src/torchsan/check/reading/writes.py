"""In-place writes in a text: what each one writes to, and where."""

from __future__ import annotations

import re
from functools import cache

from torchsan.effects import lookup, names

# Beginning with what is rarest makes them fast: `+=`, `x[i] =`, `x.data =` and `x.mul_(`.
_ASSIGNED = re.compile(r"=(?!=)(?:(?<=[-+*/@|&%]=)|(?<=\] =)|(?<=\]=)|(?<=\.data =)|(?<=\.data=))")
_METHOD = re.compile(r"_\(")
_TARGET = re.compile(r"[\w.]+$")
_SPACES = frozenset({"torch", "F", "nn", "np", "init", "math", "os", "self"})
_SPACES_OF = ("torch.", "F.", "nn.", "np.", "init.", "os.")
_PLAIN_VALUE = re.compile(r" *(?:[fbr]?[\"']|len\(|\[|str\(|int\(|\($|\([^\n]*,\)$)", re.M)


@cache
def writing_methods() -> frozenset[str]:
    """Names of in-place tensor methods."""
    found = {n for n in names() if n.endswith("_") and not n.startswith("_") and (r := lookup(n)) and r.inplace}
    return frozenset(found - {"requires_grad_", "detach_", "share_memory_", "resize_", "retain_grad_"})


def writes_in(text: str) -> list[tuple[str, int]]:
    """Targets of in-place writes, each with the start of its line."""
    found: list[tuple[str, int]] = []
    for match in _ASSIGNED.finditer(text):
        at = match.start()
        start = text.rfind("\n", 0, at) + 1
        head = text[start:at].rstrip()
        if head.endswith("]"):
            target = _item_target(head[:-1])
        elif head.endswith(".data"):
            target = _root(head)
        else:
            target = "" if _PLAIN_VALUE.match(text, at + 1) else _root(head[:-1].strip(" \t*/"))
        if target:
            found.append((target, start))
    methods = writing_methods()
    for match in _METHOD.finditer(text):
        at = match.start()
        start = text.rfind("\n", 0, at) + 1
        target = _method_target(text[start:at], methods)
        if target:
            found.append((target, start))
    return found


_ALONE = re.compile(r"\n[ \t]*[A-Za-z_][\w.\[\]]*\.([a-z]\w+)\(")


@cache
def changing() -> frozenset[str]:
    """Ops that return a changed tensor and do nothing else, though one might take them for a change in place."""
    known = set(names())
    found: set[str] = set()
    for name in known:
        row, last = lookup(name), name.rpartition(".")[2]
        if row is None or row.writes or row.readout or not row.params or last.endswith("_"):
            continue
        if row.view or name + "_" in known or last + "_" in known:
            found.add(last)
    # Those that return what is only looked at, and those that windows and drawings have, too.
    others = {"detach", "expand", "chunk", "split", "unbind", "data", "values", "indices", "eq", "ne", "view", "select"}
    return frozenset(found - others)


def dropped_in(text: str) -> list[int]:
    """Starts of lines that begin with a call of an op whose result nothing seems to take."""
    ops, found = changing(), []
    for match in _ALONE.finditer(text):
        if match[1] in ops and text[match.start() - 1 : match.start()] not in ("(", ",", "[", "\\", "+", "-", "*", "/"):
            found.append(match.start() + 1)
    return found


_SECOND_NAME = re.compile(r"\n[ \t]+([a-z]\w*) = ([a-z]\w*)[ \t]*(?=\n|#)")
# How far below a write to something with two names is looked for.
NEAR = 4000


def renamed_in(text: str, writes: list[tuple[str, int]]) -> list[int]:
    """Starts of lines that give something a second name, which is written in place further down."""
    written: dict[str, list[int]] = {}
    for target, at in writes:
        written.setdefault(target.removesuffix("[]"), []).append(at)
    return [
        match.start() + 1
        for match in _SECOND_NAME.finditer(text)
        if any(match.start() < at < match.end() + NEAR for name in match.groups() for at in written.get(name, ()))
    ]


_SHIFTED = re.compile(r"\] = (\w+)\[[^\]\n]*:-\d")


def shifted_in(text: str) -> list[int]:
    """Starts of lines that move elements along inside of one array: `x[1:] = x[:-1]`."""
    starts = [(match[1], text.rfind("\n", 0, match.start()) + 1) for match in _SHIFTED.finditer(text)]
    return [at for name, at in starts if text[at:].lstrip(" \t").startswith(f"{name}[")]


_FOR_RANKS = re.compile(
    r"async_op ?= ?True|\.(?:isend|irecv)\(|\bfully_shard\(|\bspawn\(|rank(?:\(\))? (?:==|!=|>) 0|"
    r"\b(?:all_reduce|broadcast|reduce)\(\w+\.(?:clone|sum|mean|max|min|norm)\("
)


_CAPTURES = re.compile(r"\b(?:jit\.trace(?:_module)?|export\.export|onnx\.export)\(|\b(?:trace|export)\(")


def captures_in(text: str) -> list[int]:
    """Starts of lines that may capture a module."""
    if "torch.jit" not in text and "torch.export" not in text and "torch.onnx" not in text:
        return []
    return [text.rfind("\n", 0, match.start()) + 1 for match in _CAPTURES.finditer(text)]


def ranks_in(text: str) -> list[int]:
    """Starts of lines that may be wrong in a program of several processes."""
    if "torch.distributed" not in text and "multiprocessing" not in text and "fully_shard" not in text:
        return []
    return [text.rfind("\n", 0, match.start()) + 1 for match in _FOR_RANKS.finditer(text)]


def _method_target(head: str, methods: frozenset[str]) -> str:
    """Of `x.mul_(`: x. Functions such as nn.init.normal_ are no methods."""
    dot = head.rfind(".")
    if dot < 0 or head[dot + 1 :] + "_" not in methods or head.endswith("init", 0, dot):
        return ""
    return _root(head[:dot])


def _item_target(head: str) -> str:
    """Of `x[i] =`: x, unless the key is a string."""
    bracket = head.find("[")
    if bracket <= 0 or head[bracket + 1 : bracket + 2] in ('"', "'") or head[bracket + 1 : bracket + 3] in ('f"', "f'"):
        return ""
    target = head[:bracket].strip()
    # `sys.modules[__name__] = …` of lazy packages.
    return target if target.replace(".", "").isidentifier() and target != "sys.modules" else ""


def _root(expression: str) -> str:
    """The name at the root of `x[0].data`, `self.weight`, `x.view(-1)`; empty when there is none.

    What is an element of it ends with `[]`: `xs[0]` may be a tensor in a list.
    """
    expression = expression.rpartition("= ")[2].strip()
    expression = expression.removesuffix(".data")
    element = ""
    while expression.endswith(("]", ")")):
        called = expression.endswith(")")
        opened, closed = "()" if called else "[]"
        depth = 0
        for index in range(len(expression) - 1, -1, -1):
            depth += (expression[index] == closed) - (expression[index] == opened)
            if depth == 0:
                expression = expression[:index]
                break
        else:
            return ""
        if called and not expression.startswith("self.") and "." in expression:
            expression = expression.rpartition(".")[0]
        elif not called:
            element = "[]"
    match = _TARGET.search(expression)
    found = match.group() if match else ""
    return "" if not found or found in _SPACES or found.startswith(_SPACES_OF) else found + element

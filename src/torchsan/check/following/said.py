"""What a function says of the writes that it does: by its name, its options, its words, and the lines around them."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

from torchsan.check.following.blocks import blocks_of
from torchsan.check.modelling.values import Storage, Write
from torchsan.check.reading.places import function_at
from torchsan.check.reading.prefilter import DESCRIBES
from torchsan.check.reading.program import FunctionInfo, Program

# Names that tell the reader what is going to happen.
_SAYS_SO = re.compile(
    r"_$|inplace|in_place|quantize|preprocess|^(?:update|init|reset|fill|set|write|copy|accumulate|step|zero|clip|sync|all_|reduce|assign|"
    r"insert|append|add|allocate|load|store|push|register|mutate|scatter|apply|freeze|prune|shuffle|swap|test|setup|collate|"
    r"convert|quantize|remap|merge|patch|fuse|shard|draw|paint|plot|visualize|__)(?:_|$|[a-z]*$)"
)
_DOCUMENTED = re.compile(
    r"in[- ]?place|modif|mutat|overwr|will be (?:changed|written|filled|updated)|side effect|"
    r"updates? (?:the )?(?:given|provided|passed)",
    re.I,
)
_REMARK = re.compile(r"#.*\bin[- ]?place\b", re.I)
# Asked before a write: whether it may be done in place.
PERMITS = re.compile(r"in_?place")
_PERMISSION = frozenset({"out", "inplace", "in_place", "inplace_", "copy", "clone"})


def quiet(info: FunctionInfo, program: Program, storage: Storage) -> bool:
    """Whether a function tells its callers that it writes."""
    if storage.kind == "state":
        return False
    node = info.node
    if isinstance(node, ast.Lambda) or (_SAYS_SO.search(info.name) and info.name not in ("forward", "__call__")):
        return True
    spec = node.args
    names = {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    if names & _PERMISSION or asks_permission(info):
        return True
    if info.owner is not None and any(b.endswith(("Function", "Optimizer", "Dataset")) for b in info.owner.bases):
        return True
    return says_so(info)


def asks_permission(info: FunctionInfo) -> bool:
    """Whether a test of the function asks for an option: `if not self.inplace: x = x.clone()`."""
    tests = [n.test for n in ast.walk(info.node) if isinstance(n, ast.If | ast.IfExp)]
    return any(PERMITS.search(ast.unparse(test)) for test in tests)


def says_so(info: FunctionInfo) -> bool:
    """Whether the documentation of a function or of its class tells that something is written."""
    if isinstance(info.node, ast.Lambda):
        return False
    documentation = ast.get_docstring(info.node, clean=False) or ""
    if info.owner is not None:
        documentation += ast.get_docstring(info.owner.node, clean=False) or ""
    return _DOCUMENTED.search(documentation) is not None


def announced(info: FunctionInfo, write: Write) -> bool:
    """Whether a warning stands before the write: whoever sees it is told."""
    body = [] if isinstance(info.node, ast.Lambda) else info.node.body
    for block in blocks_of(body):
        for before, node in pairwise(block):
            if node is write.place and isinstance(before, ast.Expr) and "warn" in ast.unparse(before):
                return True
    return False


def remarked(info: FunctionInfo, program: Program, write: Write) -> bool:
    """Whether a comment of the function, or what it calls to do the write, says that it is done in place."""
    home = getattr(write.place, "home", None) or program
    writer = function_at(home, getattr(write.place, "lineno", 0))
    if writer is not None and writer.node is not info.node and (says_so(writer) or asks_permission(writer)):
        return True
    lines = (info.program or program).lines[info.node.lineno - 1 : info.node.end_lineno]
    return any(_REMARK.search(line) for line in lines)


def documented(info: FunctionInfo) -> bool:
    """Whether a function describes what it is given: its callers read that instead of its lines."""
    if isinstance(info.node, ast.Lambda):
        return False
    words = ast.get_docstring(info.node, clean=False) or ""
    return DESCRIBES.search(words) is not None

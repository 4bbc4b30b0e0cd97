"""Statements that compute a new tensor and throw it away."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.check.facts import Fact
from torchsan.check.modelling.names import TENSOR_ONLY, only_tensors_have, words
from torchsan.check.reading.program import Program
from torchsan.check.reading.writes import changing
from torchsan.effects import lookup
from torchsan.model import events

# Called for what they do besides returning something.
_FOR_EFFECT = frozenset(
    [
        "backward",
        "retain_grad",
        "register_hook",
        "requires_grad_",
        "size",
        "numel",
        "item",
        "tolist",
        "numpy",
        "data_ptr",
        "element_size",
        "storage",
        "contiguous",
        "cuda",
        "cpu",
        "to",
        "is_contiguous",
        "stride",
        "dim",
        "get_device",
        "share_memory_",
        "rename",
        "refine_names",
        "align_to",
        "sparse_mask",
        "record_stream",
        "pin_memory",
        "untyped_storage",
        "coalesce",
        "set_",
        "multinomial",
        "bernoulli",
        "manual_seed",
        "expand",
        "view_as",
        "isnan",
        "isinf",
        "isfinite",
        "detach",
        "scatter",
    ]
)
# Ops that go by this name nowhere else.
_SURELY_TORCH = words(
    "clamp clamp_min clamp_max masked_fill masked_scatter index_fill index_copy unsqueeze scatter_add"
)
# Of the words that tell a tensor, those that other things have, too.
_WORDS = words("view data size device contiguous chunk expand detach backward requires_grad relu softmax")
# Code around it that calls for the sake of calling: to see an error, to time it, to warm up.
_TRIES = ("raises", "Raises", "warns", "Warns", "profile", "timer", "Timer", "time", "bench", "suppress", "Mode")
_TRYING = ("test", "bench", "warm", "time", "profile", "check", "probe", "measure")


def dropped_results(program: Program) -> list[Fact]:
    found: list[Fact] = []
    shown = program.path.endswith(".ipynb")
    for node, inside in _statements(program.tree, program.tree):
        if shown and inside is program.tree:
            # A cell of a notebook shows the value of its last line.
            continue
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if any(keyword.arg in ("out", "inplace", "copy", None) for keyword in call.keywords):
            continue
        owner = _subject(call, inside, program)
        if owner is not None:
            words = program.words(owner)
            memory = events.Memory(words if len(words) <= 40 and "(" not in words else "")
            event = events.ResultDropped(call.func.attr, memory, events.Line(program.place(node)))
            found.append(Fact(event, program.place(node)))
    return found


def _subject(call: ast.Call, inside: ast.AST, program: Program) -> ast.expr | None:
    """The tensor of which the call makes a new one; None for calls that may do something else."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name.endswith("_") or name in _FOR_EFFECT or not isinstance(call.func, ast.Attribute):
        return None
    dotted = program.dotted(call.func)
    if dotted.startswith(("torch.nn.functional.", "torch.")):
        row = lookup(dotted) if dotted.count(".") == 1 or dotted.startswith("torch.nn.functional.") else None
        return call.args[0] if row is not None and name in changing() and call.args else None
    if _names_no_tensor(call.func.value, program) or name not in only_tensors_have() or name not in changing():
        return None
    return call.func.value if name in _SURELY_TORCH or is_tensor(call.func.value, inside, program) else None


def is_tensor(node: ast.expr, inside: ast.AST, program: Program) -> bool:
    """Whether a function shows that a name is a tensor: by where it comes from, or by what else it is asked."""
    return isinstance(node, ast.Name) and any(_tells(other, node.id, program) for other in ast.walk(inside))


def _tells(node: ast.AST, name: str, program: Program) -> bool:
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == name and node.attr in TENSOR_ONLY - _WORDS
    if isinstance(node, ast.Assign):
        bound = any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
        return bound and isinstance(node.value, ast.Call) and program.dotted(node.value.func).startswith("torch.")
    if isinstance(node, ast.arg):
        return node.arg == name and node.annotation is not None and "Tensor" in ast.unparse(node.annotation)
    return False


def _names_no_tensor(node: ast.expr, program: Program) -> bool:
    """`np`, an imported module; `self`, which has methods of its own."""
    return isinstance(node, ast.Name) and (node.id in program.imports or node.id in ("self", "cls"))


def _statements(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.Expr, ast.AST]]:
    """Expressions that stand alone, each with its function, but for those that are tried, timed or repeated."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr):
            yield child, function
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not any(word in child.name.lower() for word in _TRYING):
                yield from _statements(child, child)
        elif isinstance(child, ast.Try | ast.While):
            continue
        elif isinstance(child, ast.With | ast.AsyncWith):
            if not any(word in ast.unparse(item.context_expr) for item in child.items for word in _TRIES):
                yield from _statements(child, function)
        elif isinstance(child, ast.For | ast.AsyncFor):
            if len(child.body) > 1 or not isinstance(child.body[0], ast.Expr):
                yield from _statements(child, function)
        elif isinstance(child, ast.If | ast.Module):
            yield from _statements(child, function)

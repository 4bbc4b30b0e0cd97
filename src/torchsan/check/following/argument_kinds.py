"""What a function does with an argument that has no type: some things can be done only with tensors."""

from __future__ import annotations

import ast
from functools import lru_cache

from torchsan.check.modelling.names import FACTORIES, only_tensors_have, words
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.effects import lookup

# Modules, batches and distributions have these, too, but none of them can be added to in place.
_IF_WRITTEN = words("to cuda cpu float double half long type_as bfloat16")
_ATTRIBUTES = words("device is_cuda requires_grad grad_fn is_leaf")
# Arrays of NumPy have methods of these names.
_ARRAYS_HAVE = words("view data")
# Functions of torch that take what is no tensor.
_TAKES_ANYTHING = FACTORIES | words(
    """as_tensor asarray from_numpy is_tensor result_type save typename is_storage cat concat concatenate stack hstack
    vstack dstack column_stack row_stack block_diag einsum meshgrid broadcast_tensors cartesian_prod chain_matmul
    align_tensors atleast_1d atleast_2d atleast_3d"""
)


@lru_cache(maxsize=1024)
def used_as_tensors(info: FunctionInfo) -> frozenset[str]:
    """Names of the arguments that are surely tensors, by what is done with them before they get another value."""
    program = info.program
    if program is None or isinstance(info.node, ast.Lambda):
        return frozenset()
    spec = info.node.args
    names = {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs) if a.annotation is None}
    nodes = list(ast.walk(info.node))
    bound = _bound(nodes)
    added = _added(nodes, program)
    found: set[str] = set()
    for node in nodes:
        name = _shown_by(node, added, program)
        # A name that stands for something else from then on tells nothing of the argument.
        if name in names and getattr(node, "lineno", 0) <= bound.get(name, 1 << 30):
            found.add(name)
    return frozenset(found - _asked(nodes))


@lru_cache(maxsize=1024)
def used_as_containers(info: FunctionInfo) -> frozenset[str]:
    """Names of the arguments that hold things of their own: `isinstance(batch[key], list)` is asked of no tensor."""
    kinds = [kind.value for kind in _asked_of(list(ast.walk(info.node))) if isinstance(kind, ast.Subscript)]
    return frozenset(kind.id for kind in kinds if isinstance(kind, ast.Name))


def _bound(nodes: list[ast.AST]) -> dict[str, int]:
    """The first line on which each name gets a value, other than one that is added to it."""
    added = {id(n.target) for n in nodes if isinstance(n, ast.AugAssign)}
    found: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in added:
            found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
    return found


def _asked(nodes: list[ast.AST]) -> set[str]:
    """Names of which the function asks what they are, or how large: they may be several things, numbers among them."""
    tests = [n.test for n in nodes if isinstance(n, ast.If | ast.IfExp | ast.While)]
    sizes = [t.left for t in tests if isinstance(t, ast.Compare) and isinstance(t.comparators[0], ast.Constant)]
    return {kind.id for kind in (*_asked_of(nodes), *sizes) if isinstance(kind, ast.Name)}


def _asked_of(nodes: list[ast.AST]) -> list[ast.expr]:
    """The expressions of which `isinstance` and the like ask what they are."""
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.args]
    return [n.args[0] for n in calls if n.func.id in ("isinstance", "type", "hasattr")]  # type: ignore[attr-defined]


def _added(nodes: list[ast.AST], program: Program) -> dict[str, int]:
    """Names that something is added to, each with the line before which what is done with it tells what it was.

    A number to which a tensor is added becomes one.
    """
    found: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            calls = [n.func for n in ast.walk(node.value) if isinstance(n, ast.Call)]
            tensor = any(program.dotted(called).startswith("torch.") for called in calls)
            found.setdefault(node.target.id, node.lineno if tensor else 1 << 30)
    return found


def _by_sizes(call: ast.Call) -> bool:
    """`x.view(n, 4)`, `x.view(-1)`: an array is viewed as another kind of number."""
    numbers = [ast.unparse(part).lstrip("-").isdigit() for part in call.args]
    return any(numbers) and isinstance(call.func, ast.Attribute) and call.func.attr == "view"


def _shown_by(node: ast.AST, added: dict[str, int], program: Program) -> str:
    """The name that an expression shows to be a tensor's."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _ATTRIBUTES:
        return node.value.id
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    called = node.func
    if isinstance(called.value, ast.Name) and called.value.id not in program.imports:
        name = called.value.id
        proves = called.attr in only_tensors_have() and (called.attr not in _ARRAYS_HAVE or _by_sizes(node))
        if proves or (node.lineno < added.get(name, 0) and called.attr in _IF_WRITTEN):
            return name
    if not node.args or not isinstance(node.args[0], ast.Name) or called.attr in _TAKES_ANYTHING:
        return ""
    dotted = program.dotted(called)
    row = lookup(dotted) if dotted.startswith(("torch.nn.functional.", "torch.")) else None
    return node.args[0].id if row is not None and row.params[:1] == ("input",) else ""

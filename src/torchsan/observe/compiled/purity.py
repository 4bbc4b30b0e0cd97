"""What a graph is made of: functions that only compute, parts that are graphs of their own, or more than that."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from torchsan.observe.compiled.records import Inner
from torchsan.observe.compiled.scopes import Scopes

# Where functions live that do nothing but compute.
_MODULES = {
    *("_operator", "math", "torch", "torch.nn.functional", "torch.functional", "torch._C._nn", "torch._C"),
    *("torch._tensor", "torch._VF"),
}
_BUILTINS = {"getattr", "max", "min", "abs", "round", "pow", "sum"}
_SWITCHES = ("_enter_autocast", "_exit_autocast")
# Operators that run a graph of their own, handed over first.
CUSTOM = "autograd_function_apply"
_PARTS = {CUSTOM, "tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap"}


def only_computes(graph: torch.fx.Graph) -> bool:
    """Can it be run once more, on copies, and nobody would know?"""
    return all(map(_computes, graph.nodes))


def part_of(target: Any) -> str | None:
    """The name of an operator that runs a graph of its own; None for any other function."""
    if not isinstance(target, torch._ops.HigherOrderOperator):
        return None
    name = str(target.name())
    return name if name in _PARTS else None


def graph_of_part(node: torch.fx.Node) -> torch.fx.Graph | None:
    """The graph that such a node runs."""
    first = node.args[0] if node.op == "call_function" and part_of(node.target) is not None and node.args else None
    owner = node.graph.owning_module
    if not isinstance(first, torch.fx.Node) or first.op != "get_attr" or owner is None:
        return None
    held: Any = owner
    for name in str(first.target).split("."):
        held = getattr(held, name, None)
    return held.graph if isinstance(held, torch.fx.GraphModule) else None


def writes_in_part(node: torch.fx.Node, scopes: dict[torch.fx.Node, Scopes]) -> bool:
    """Does a part of the graph write, as far as names tell?"""
    graph = graph_of_part(node)
    if graph is None:
        return False
    return any(written_in_part(inner, scopes) is not None or writes_in_part(inner, scopes) for inner in graph.nodes)


def written_in_part(node: torch.fx.Node, scopes: dict[torch.fx.Node, Scopes]) -> Inner | None:
    """What a node writes by its name, where the graph has not been run to find out."""
    given = node.kwargs.get("out", node.args[0] if node.args else None)
    if node not in scopes or not isinstance(given, torch.fx.Node):
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name == "setitem" or (getattr(node.target, "__module__", "") == "_operator" and name.startswith("i")):
        return Inner(given, "__setitem__" if name == "setitem" else f"__{name}__")
    if name.endswith("_") or "out" in node.kwargs:
        return Inner(given, name)
    inplace = node.kwargs.get("inplace") is True
    return Inner(given, f"{name}_") if inplace else None


def _computes(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return bool(node.op != "call_module")
    target: Any = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).startswith(("aten.", "prims."))
    if isinstance(target, torch._ops.HigherOrderOperator):
        part = graph_of_part(node)
        return part is not None and only_computes(part)
    owner, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    if owner == "builtins":
        return name in _BUILTINS
    if owner is None or owner in _MODULES or name in _SWITCHES:
        return True
    return str(owner).startswith(("torch.special", "torch.linalg", "torch.fft"))

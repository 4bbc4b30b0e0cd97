"""What a graph is made of: functions that only compute, parts that are graphs of their own, or more than that."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

# Where functions live that do nothing but compute.
_MODULES = {
    *("_operator", "math", "torch", "torch.nn.functional", "torch.functional", "torch._C._nn", "torch._C"),
    *("torch._tensor", "torch._VF"),
}
_BUILTINS = {"getattr", "max", "min", "abs", "round", "pow", "sum"}
# Switches, and `.data`, which dynamo puts into its graphs as functions that live elsewhere.
_OTHERS = ("_enter_autocast", "_exit_autocast", "_get_data_attr")
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
    if owner is None or owner in _MODULES or name in _OTHERS:
        return True
    return str(owner).startswith(("torch.special", "torch.linalg", "torch.fft"))

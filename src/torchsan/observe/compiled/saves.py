"""What a region keeps for its backward, and for which line: read off the two graphs that AOTAutograd made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.compiled.replay import node_site


@dataclass(frozen=True, slots=True)
class RegionSave:
    """One saved tensor: the op whose gradient needs it, its line, and whether it is that op's own result."""

    op: str
    site: LineSite | None
    is_result: bool
    is_input: bool


def region_saves(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, count: int) -> list[RegionSave]:
    """The saved tensors in the order in which the compiled function saves them."""
    output = next(iter(forward.graph.find_nodes(op="output")))
    outputs = list(output.args[0]) if count else []
    needs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    saved = [node for node in outputs[len(outputs) - count :] if _is_tensor(node)]
    return [_described(node, needs.get(node.name)) for node in saved]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _described(made: torch.fx.Node, needed: torch.fx.Node | None) -> RegionSave:
    users = sorted(needed.users) if needed is not None else []
    user = next((u for u in users if node_site(u) is not None), None)
    maker = _source(made, "source_fn_stack")
    if user is None:
        return RegionSave(maker[1], node_site(made), True, made.op == "placeholder")
    needer = _source(user, "fwd_source_fn_stack")
    if needer == ("", ""):
        # An op that is computed again in backward: it stands there as it stood in forward.
        needer = _source(user, "source_fn_stack")
    is_result = made.op != "placeholder" and maker == needer and node_site(made) is node_site(user)
    return RegionSave(needer[1], node_site(user), is_result, made.op == "placeholder")


def _source(node: torch.fx.Node, key: str) -> tuple[str, str]:
    """The call in the user's source that a node comes from: its name in dynamo's graph, and the function's name."""
    stack = node.meta.get(key)
    if not stack:
        return "", ""
    name, target = stack[-1][:2]
    if isinstance(target, type):
        return str(name), target.__name__
    return str(name), target if isinstance(target, str) else getattr(target, "__name__", str(target))

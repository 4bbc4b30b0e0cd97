"""What a region keeps for its backward, and for which line: read off the two graphs that AOTAutograd made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from torchsan.observe.compiled.lines import LineSite, node_site

_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True, slots=True)
class RegionSave:
    """One saved tensor: the op whose gradient needs it, its line, and whether it is that op's own result."""

    op: str
    site: LineSite | None
    is_result: bool
    # Is it memory that the region was given, and that its forward itself overwrites?
    overwritten: bool


def region_saves(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, count: int) -> list[RegionSave]:
    """The saved tensors in the order in which the compiled function saves them."""
    output = next(iter(forward.graph.find_nodes(op="output")))
    outputs = list(output.args[0]) if count else []
    kept = outputs[len(outputs) - count :]
    names = {node.name for node in kept if isinstance(node, torch.fx.Node)}
    given = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    # What depends on the gradients that come in is the backward proper; the rest is forward, computed again.
    proper = _downstream(node for name, node in given.items() if name not in names)
    written = {node.args[0] for node in forward.graph.find_nodes(op="call_function", target=_COPY)}
    return [_described(node, _needers(given.get(node.name), proper), written) for node in kept if _is_tensor(node)]


def _whole(node: torch.fx.Node) -> torch.fx.Node:
    """What a node of views is a view of."""
    while node.op == "call_function" and _is_view(node.target) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node


def _is_view(target: Any) -> bool:
    """Does the op hand back the memory of its first argument, unwritten?"""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.arguments or not schema.returns:
        return False
    given, returned = schema.arguments[0].alias_info, schema.returns[0].alias_info
    return given is not None and returned is not None and not given.is_write


def _downstream(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    found: set[torch.fx.Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(node.users)
    return found


def _needers(node: torch.fx.Node | None, proper: set[torch.fx.Node]) -> list[torch.fx.Node]:
    """The nodes of the backward proper that take this value, or something computed from it again; in order."""
    found: set[torch.fx.Node] = set()
    seen: set[torch.fx.Node] = set()
    todo = [node] if node is not None else []
    while todo:
        at = todo.pop()
        for user in at.users:
            if user in proper:
                found.add(user)
            elif user not in seen:
                seen.add(user)
                todo.append(user)
    return [user for user in sorted(found) if node_site(user) is not None]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _described(made: torch.fx.Node, users: list[torch.fx.Node], written: set[Any]) -> RegionSave:
    maker = _source(made, "source_fn_stack")
    is_input = made.op == "placeholder"
    overwritten = _whole(made) in written
    own = next((user for user in users if not is_input and _source(user, "fwd_source_fn_stack") == maker), None)
    user = own or next(iter(users), None)
    if user is None:
        return RegionSave(maker[1] or _operation(made), node_site(made), True, overwritten)
    op = _source(user, "fwd_source_fn_stack")[1] or _operation(made)
    return RegionSave(op, node_site(user), own is not None, overwritten)


def _operation(made: torch.fx.Node) -> str:
    """For modules that dynamo takes apart without a name: the op of the graph that takes the value, or made it."""
    for node in (*made.users, made):
        name = getattr(node.target, "_opname", "") if node.op == "call_function" else ""
        if name and name not in ("t", "transpose", "permute", "view", "detach", "alias"):
            return str(name)
        if name:
            return next((found for user in node.users if (found := _operation(user))), str(name))
    return "the compiled region"


def _source(node: torch.fx.Node, key: str) -> tuple[str, str]:
    """The call in the user's source that a node comes from: its name in dynamo's graph, and the function's name."""
    stack = node.meta.get(key)
    if not stack:
        return "", ""
    name, target = stack[-1][:2]
    if isinstance(target, type):
        return str(name), target.__name__
    return str(name), target if isinstance(target, str) else getattr(target, "__name__", str(target))

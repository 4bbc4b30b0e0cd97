"""Graphs inside a graph: a custom function and a checkpointed block are graphs of their own, which an operator runs.

It runs them as ever. That one of their nodes is about to run, and what it gave, is told by nodes put in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch.fx


class Listener(Protocol):
    def entering(self, node: torch.fx.Node) -> None: ...

    def given(self, node: torch.fx.Node, value: Any) -> None: ...


def overheard(part: Any, listener: Listener) -> Any:
    """What runs like this graph and tells of its nodes; what is no graph comes back as it is."""
    if not isinstance(part, torch.fx.GraphModule):
        return part
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    untold: list[torch.fx.Node] = []
    for node in part.graph.nodes:
        if node.op != "placeholder":  # before the last of these a graph has nothing else
            while untold:
                made = untold.pop()
                graph.call_function(_giving(listener, made), (copies[made],))
            graph.call_function(_entering(listener, node))
        copies[node] = graph.node_copy(node, copies.__getitem__)
        untold.append(node)
    module = torch.fx.GraphModule(part, graph)
    module.meta.update(part.meta)
    for name, child in list(module.named_children()):
        setattr(module, name, overheard(child, listener))
    return module


def _entering(listener: Listener, node: torch.fx.Node) -> Callable[[], None]:
    def entering() -> None:
        listener.entering(node)

    return entering


def _giving(listener: Listener, node: torch.fx.Node) -> Callable[[Any], None]:
    def giving(value: Any) -> None:
        listener.given(node, value)

    return giving

"""What we ask of dynamo while it traces: its functions, their instructions and variables. All private to torch.

- `SubgraphTracer.create_proxy`, `OutputGraph.current_tx`, `InstructionTranslator.symbolic_locals`: what the variables
  of traced functions stand for; without them only arguments that are never bound again are known.
- `LazyVariableTracker.is_realized`, `VariableTracker.proxy`, `.value`, `ListVariable.items`: as above.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
import torch.fx

from torchsan.compat_compile import dynamo


def proxies() -> tuple[Any, str] | None:
    """Where the nodes of a graph are made, one by one."""
    tracer = getattr(dynamo("output_graph"), "SubgraphTracer", None)
    return (tracer, "create_proxy") if tracer is not None and hasattr(tracer, "create_proxy") else None


def traced_functions(output: Any) -> Iterator[tuple[CodeType, Any, dict[str, Any]]]:
    """The functions that dynamo is in the middle of, innermost first: code, instruction, variables by their names."""
    at = getattr(output, "current_tx", None)
    while at is not None and hasattr(at, "f_code"):
        yield at.f_code, getattr(at, "current_instruction", None), getattr(at, "symbolic_locals", {})
        at = getattr(at, "parent", None)


def traced_value(variable: Any) -> Any:
    """What a variable stands for: a node of the graph, a module of the program's, a list (identity, entries)."""
    if type(variable).__name__ == "LazyVariableTracker":
        if not variable.is_realized():  # to ask for more of it would make dynamo guard it
            return None
        variable = variable.unwrap()
    held: dict[str, Any] = getattr(variable, "__dict__", {})
    node = getattr(held.get("proxy"), "node", None)
    if isinstance(node, torch.fx.Node):
        return node if isinstance(node.meta.get("example_value"), torch.Tensor) else None
    if type(variable).__name__ == "ListVariable":
        return id(variable), tuple(found for item in held.get("items", ()) if (found := traced_value(item)) is not None)
    value = held.get("value")
    return value if isinstance(value, torch.nn.Module) else None


def is_resumed(code: CodeType) -> bool:
    """Is it the rest of a function behind a graph break, which dynamo goes on with as with a function of its own?"""
    return code.co_name.startswith("torch_dynamo_resume_in_")

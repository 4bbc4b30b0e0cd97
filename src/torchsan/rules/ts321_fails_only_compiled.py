"""Lines that run in eager fail where they are compiled.

What it is. `torch.compile` hands the lines of a region to a compiler. What it makes of them can fail although the same
lines run in eager: an op that the backend does not know, or a value that compiled code overwrites before its own
backward has used it. Of a buffer that a region updates and then computes with, AOTAutograd may keep the buffer itself
and make the update again in backward, from values that have the update already. And a write by the result of an op that
hands back its input, as dropout does outside training, may be lost.

What goes wrong. The error names the compiler's files and, at best, an op; at backward it says that a variable "has been
modified by an inplace operation" though no line of the program is wrong. Or nothing is said, and the gradient is wrong,
or a buffer stays as it was.

How to fix. It is the compiler's fault more often than the program's. The line that torchsan names is the first with
which the region fails: leave it out of the region (`torch.compiler.disable` on the function that holds it, or
`torch._dynamo.graph_break()` before it), write the value to new memory where it is an in-place write, or try another
backend; and report it to torch or to the backend with that line.

When to ignore. Where the program catches the error and goes on in eager.
"""

from __future__ import annotations

from typing import Any

from torchsan.model import Finding
from torchsan.model.events import CompiledOnlyFailure
from torchsan.rules import finding
from torchsan.rules.wording import idea

CODE = "TS321"
NAME = "fails-only-compiled"
LEVEL = "error"

BAD = """
import torch


def backend(graph, inputs):
    if any(node.target is torch.sort for node in graph.graph.nodes):
        raise NotImplementedError("this compiler cannot lower sort")
    return graph.forward


@torch.compile(backend=backend)
def largest(x):
    scaled = x * 2
    ordered = torch.sort(scaled).values  # <- TS321
    return ordered[-3:].sum()


largest(torch.arange(8.0))
"""

GOOD = """
import torch


def backend(graph, inputs):
    if any(node.target is torch.sort for node in graph.graph.nodes):
        raise NotImplementedError("this compiler cannot lower sort")
    return graph.forward


@torch.compile(backend=backend)
def largest(x):
    scaled = x * 2
    return torch.topk(scaled, 3).values.sum()


largest(torch.arange(8.0))
"""


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, CompiledOnlyFailure):
        return None
    where = f" of `{event.function}`" if event.function else ""
    if event.form == "compiling":
        message = f"the compiled region{where} fails from this line on; the same lines run in eager"
        spans = event.line.spans("cause", "the region compiles without this line and what follows", primary=True)
    elif event.form == "refused":
        message = f"torch refuses this write as compiled code{where} makes it; in eager it does not"
        spans = event.line.spans("mutated", "in eager autograd lets this write pass", primary=True)
    elif event.form == "gradient":
        return _wrong_gradient(event, where)
    elif event.form == "write":
        return _lost_write(event, where)
    else:
        message = f"compiled code{where} overwrites a value that its own backward needs; in eager it does not"
        spans = event.line.spans("mutated", "this write, as it was compiled", primary=True)
        if event.save is not None:
            spans.append(event.save.span("saved", "kept for the gradient of this line"))
    if event.called is not None:
        spans.append(event.called.span("needed", "compiled here" if event.form == "compiling" else "needed here"))
    return finding(
        globals(),
        message,
        spans,
        why=event.error,
        notes=("the graph of the region was run in eager, without data, and nothing failed",),
        fixes=(
            idea("keep this line out of the region: torch.compiler.disable on the function that holds it"),
            idea("if it writes in place, write to new memory"),
        ),
    )


def _lost_write(event: CompiledOnlyFailure, where: str) -> Finding:
    """Nothing fails: what should have changed is as it was."""
    spans = event.line.spans("mutated", "written in eager; compiled, this changes nothing", primary=True)
    if event.called is not None:
        spans.append(event.called.span("needed", "called here"))
    return finding(
        globals(),
        f"compiled code{where} loses this write to what it was given; in eager it is made",
        spans,
        why="the compiler took what is written for new memory: it may be reached through an op that returned its input",
        notes=("the graph of the region was run in eager on copies, and there the values change",),
        fixes=(
            idea("write the tensor by its own name, not by the result of an op on it"),
            idea("keep this line out of the region: torch.compiler.disable on the function that holds it"),
        ),
    )


def _wrong_gradient(event: CompiledOnlyFailure, where: str) -> Finding:
    """Nothing fails: the numbers are wrong."""
    spans = event.line.spans("mutated", "written in the region, and written back when it ends", primary=True)
    if event.save is not None and event.save.place != event.line.place:
        spans.append(event.save.span("saved", "the gradient of this line is computed from the old value again"))
    if event.called is not None:
        spans.append(event.called.span("needed", "needed here"))
    return finding(
        globals(),
        f"compiled code{where} computes a gradient from memory that it has overwritten; in eager it does not",
        spans,
        why="the backward keeps the old value by reference and applies this write to it a second time",
        notes=("torch raises nothing here: the gradient is computed from the changed value",),
        fixes=(
            idea("compute from a copy of the updated value: use its .clone() in what follows"),
            idea("keep this line out of the region: torch.compiler.disable on the function that holds it"),
        ),
    )

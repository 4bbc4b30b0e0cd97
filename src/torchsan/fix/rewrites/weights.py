"""Weights that a step changes while a loss still needs the old ones: the loss is computed with copies of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.order import stepped_modules
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
LIMIT = 3


def copied_weights(spot: Spot) -> Found:
    """The forward before the step runs on clones, which the step does not write; gradients still reach the weights."""
    source, step, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    if step is None or torch is None:
        return
    scope = source.scope_of(step)
    for model in stepped_modules(source, step):
        calls = [n for n in ast.walk(scope) if isinstance(n, ast.Call)]
        uses = [use for call in calls for use in _uses(call, model)]
        before = [use for use in uses if source.end(use) <= source.start(step)]
        yield from (_copied(source, [use], model, torch) for use in list(reversed(before))[:LIMIT])
        if len(uses) > 1:
            # Other turns of a loop step again, while the losses of this one wait for their backward.
            yield _copied(source, uses, model, torch)


def _uses(call: ast.Call, model: str) -> list[ast.expr]:
    """`model(x)`, or `model` handed to a function that computes the loss."""
    if ast.unparse(call.func) == model and not call.keywords:
        return [call]
    if syntax.called(call) in ("SGD", "Adam", "AdamW", "RMSprop", "clip_grad_norm_", "deepcopy", "isinstance"):
        return []
    return [argument for argument in call.args if ast.unparse(argument) == model]


def _copied(source: Source, uses: list[ast.expr], model: str, torch: str) -> tuple[str, list[Edit]]:
    weights = f"{{name: p.clone() for name, p in {model}.named_parameters()}}"
    edits = []
    for use in uses:
        if isinstance(use, ast.Call):
            given = ", ".join(source.segment(argument) for argument in use.args)
            text = f"{torch}.func.functional_call({model}, {weights}, ({given},))"
        else:
            text = f"lambda *args: {torch}.func.functional_call({model}, {weights}, args)"
        edits.append(Edit(source.start(use), source.end(use), text))
    lines = " and ".join(dict.fromkeys(str(use.lineno) for use in uses))
    return f"compute the losses of line {lines} with copies of the weights of {model}", edits


def clear_cache(spot: Spot) -> Found:
    """Autocast forgets its copies of the weights after the step."""
    source, step, torch = spot.source, spot.source.statement(spot.span), syntax.torch_name(spot.source)
    edit = syntax.insert_after(source, step, f"{torch}.clear_autocast_cache()") if step is not None and torch else None
    if edit is not None:
        yield f"{torch}.clear_autocast_cache() after the step", [edit]

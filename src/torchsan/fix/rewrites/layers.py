"""Layers that work in place: switched off where they are made, or given a copy to work on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Edit

Found = Iterator[tuple[str, Iterable[Edit]]]


def inplace_false(spot: Spot) -> Found:
    """`inplace=False` in the call that made the layer."""
    call = spot.source.expression(spot.span)
    if not isinstance(call, ast.Call):
        return
    value = next((k.value for k in call.keywords if k.arg == "inplace"), None)
    if value is None:
        value = next((argument for argument in reversed(call.args) if syntax.is_true(argument)), None)
    if value is None:
        # A flag that is handed on: `nn.ReLU(inplace)`, `nn.ReLU(cfg.inplace)`.
        value = next((argument for argument in reversed(call.args) if "inplace" in ast.unparse(argument)), None)
    if value is None:
        return
    source = spot.source
    shown = " ".join(source.segment(call.func).split())
    edit = Edit(source.start(value), source.end(value), "False")
    yield f"inplace=False for this {shown.rpartition('.')[2]} (line {call.lineno})", [edit]


def clone_argument(spot: Spot) -> Found:
    """Hand a copy to the call that writes its argument."""
    source, call = spot.source, spot.source.expression(spot.span)
    if not isinstance(call, ast.Call):
        return
    if syntax.is_inplace_call(call) and not syntax.is_module_function(call):
        return
    for argument in call.args:
        if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
            text = source.segment(argument)
            yield f"pass a copy: {text}.clone()", [syntax.cloned(source, argument)]
    for argument in call.args:
        if isinstance(argument, (ast.Call, ast.BinOp)):
            yield "pass a copy: ….clone()", [syntax.cloned(source, argument)]

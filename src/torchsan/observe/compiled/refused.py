"""Errors that torch raises while a region runs: eager would raise them at a line, and the graph still knows which."""

from __future__ import annotations

import ast
from typing import Any

import torch
import torch.fx

from torchsan import compat_compile
from torchsan.model.events import Line, Memory, RefusedWrite, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.compiled.lines import LineSite
from torchsan.observe.compiled.records import Refused
from torchsan.observe.compiled.replay import replay, write_site
from torchsan.observe.objects import attributes_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import origin_line, reason_of, whole_statement, written_name

# Kept with an error until it ends the program.
EVENTS = "__torchsan_events__"


def explained_running(
    recorder: Recorder, error: Exception, module: torch.fx.GraphModule, args: tuple[Any, ...]
) -> None:
    """Run the graph again without data: if that is refused for the same reason, its line is the line of the error."""
    reason = reason_of(error)
    if reason is None or EVENTS in attributes_of(error):
        return
    with recorder.shielded():
        held = compat_compile.hold()
        try:
            with compat_compile.inference_known():
                refused = replay(module, list(args)).refused
        finally:
            compat_compile.release(held)
        site = write_site(refused.node) if refused is not None else None
        if refused is None or site is None or reason_of(refused.error) != reason:
            return
        name = _operand(site, refused) or written_name(site.place)
        callers = site.above[:3]
        write = Write("", "op", Line(whole_statement(site.place), site.library_place), callers=callers)
        event = RefusedWrite(reason, Memory(name), write, origin_line(site.place, name), text=str(error))
        setattr(error, EVENTS, [event])


def _operand(site: LineSite, refused: Refused) -> str:
    """What the line calls the only one of its operands that was made in inference mode."""
    file = syntax.file_of(site.place.path)
    node = file.at(site.place) if file is not None else None
    if isinstance(node, ast.BinOp):
        parts: list[ast.expr] = [node.left, node.right]
    elif isinstance(node, ast.AugAssign):
        parts = [node.target, node.value]
    elif isinstance(node, ast.Call):
        method = refused.node.op == "call_method" and isinstance(node.func, ast.Attribute)
        parts = [node.func.value, *node.args] if method else list(node.args)  # type: ignore[attr-defined]
    else:
        return ""
    found = [parts[index] for index in refused.inference if index < len(parts)]
    return syntax.text_of(found[0]) if len(found) == 1 else ""

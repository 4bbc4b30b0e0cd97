"""Errors that torch raises while a region runs: eager would raise them at a line, and the graph still knows which."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan import compat_compile
from torchsan.model.events import CompiledOnlyFailure, Line, Memory, RefusedWrite, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.compiled.lines import LineSite, write_site
from torchsan.observe.compiled.nested import overheard
from torchsan.observe.compiled.private import on_our_own
from torchsan.observe.compiled.records import Refused, Replay
from torchsan.observe.compiled.rehearsal import copies
from torchsan.observe.compiled.replay import replay
from torchsan.observe.objects import attributes_of
from torchsan.observe.refusals import origin_line, reason_of, whole_statement, written_name

if TYPE_CHECKING:
    from torchsan.observe.compiled.region import Region

# Kept with an error until it ends the program.
EVENTS = "__torchsan_events__"


def explained_running(region: Region, error: Exception, module: torch.fx.GraphModule, args: tuple[Any, ...]) -> None:
    """Run the graph again without data: if that is refused for the same reason, its line is the line of the error."""
    reason = reason_of(error)
    if reason is None or EVENTS in attributes_of(error):
        return
    with region.recorder.shielded():
        held = compat_compile.hold()
        try:
            with compat_compile.inference_known():
                known = replay(module, list(args))
        finally:
            compat_compile.release(held)
        event = refused_write(error, known.refused) if known.refused is not None else None
        if event is not None and event.reason == reason:
            setattr(error, EVENTS, [event])
        elif known.complete and (own := _written_back(region, error)) is not None:
            setattr(error, EVENTS, [own])


def _written_back(region: Region, error: Exception) -> CompiledOnlyFailure | None:
    """A write that is not refused in eager, as one through `.data`: compiled code writes the tensor itself."""
    site = region.only_write()
    if site is None:
        return None
    line = Line(whole_statement(site.place), site.library_place)
    return CompiledOnlyFailure(line, region.function, str(error).splitlines()[0][:200], "refused")


def refused_in_eager(module: torch.fx.GraphModule, inputs: list[Any], known: Replay) -> Refused | None:
    """Does torch refuse the same lines in eager? Tried on copies."""
    trial = _Trial(module)
    try:
        with on_our_own():
            trial.run(*copies(tuple(inputs), {write.target for write in known.writes}))
    except Exception as error:
        return Refused(error, trial.at, []) if trial.at is not None else None
    return None


class _Trial(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph and knows at which of its nodes it is."""

    at: torch.fx.Node | None = None

    def run_node(self, node: torch.fx.Node) -> Any:
        self.at = node
        return super().run_node(node)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(target, tuple(overheard(value, self) for value in args), kwargs)

    def entering(self, node: torch.fx.Node) -> None:
        self.at = node

    def given(self, node: torch.fx.Node, value: Any) -> None:
        pass


def refused_write(error: BaseException, refused: Refused) -> RefusedWrite | None:
    """The line of a node that torch has refused to run, told with the error that the program gets."""
    reason, site = reason_of(refused.error), write_site(refused.node)
    if reason is None or site is None:
        return None
    name = _operand(site, refused) or written_name(site.place)
    write = Write("", "op", Line(whole_statement(site.place), site.library_place), callers=site.above[:3])
    return RefusedWrite(reason, Memory(name), write, origin_line(site.place, name), text=str(error))


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

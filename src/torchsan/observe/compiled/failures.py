"""Errors that torch raises while it compiles: what eager would have said of the same lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan import compat_compile
from torchsan.model.events import CompiledOnlyFailure, Line, Memory, RefusedWrite, StaleSave, Write
from torchsan.observe import nodes
from torchsan.observe.compiled.lines import LineSite, node_site, site_of_summaries
from torchsan.observe.compiled.refused import EVENTS, refused_in_eager, refused_write
from torchsan.observe.compiled.rehearsal import can_be_tried
from torchsan.observe.objects import attributes_of, text_of, told_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import origin_line, reason_of, whole_statement, written_name
from torchsan.observe.sites import site_of
from torchsan.observe.stale import StaleFinder

if TYPE_CHECKING:
    from torchsan.observe.compiled.region import Region

# Seconds for finding the line; each try compiles a part of the region.
PATIENCE = 20.0
# Read past whatever the user's own exceptions make of attributes.
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__


def explained_later(
    recorder: Recorder,
    error: BaseException,
    region: Region,
    module: torch.fx.GraphModule,
    inputs: list[Any],
    fails: Callable[[torch.fx.GraphModule], bool],
) -> None:
    """Keep what is known of a failed compilation with its error: told only if the error ends the program."""
    with recorder.shielded():
        if nodes.STALE in text_of(error):
            finder = StaleFinder(recorder, region.replay.ledger)
            events = finder.loud(region.replay.roots, str(error), sys._getframe(1))
            known = [e for e in events if isinstance(e, StaleSave) and e.write.line and e.save.line]
            setattr(error, EVENTS, [replace(event, compiling=True) for event in known])
            if known:
                return
        event = _unlike_eager(error, region, module, inputs, fails)
        if event is not None:
            setattr(error, EVENTS, [event])


def _unlike_eager(
    error: BaseException,
    region: Region,
    module: torch.fx.GraphModule,
    inputs: list[Any],
    fails: Callable[[torch.fx.GraphModule], bool],
) -> CompiledOnlyFailure | RefusedWrite | None:
    """Lines that compiled code alone does not take; and if eager does not either, what that refuses."""
    if not region.replay.complete:
        return None
    if can_be_tried(module, region.replay):
        refused = refused_in_eager(module, inputs, region.replay)
        if refused is not None:
            return refused_write(error, refused)
    elif reason_of(error) is not None:
        return None
    return compiled_only(region, error, first_failing(module, fails))


def compiled_only(region: Region, error: BaseException, line: LineSite | None) -> CompiledOnlyFailure | None:
    """What there is to tell of a region that ran without data, and that its compiler would not take."""
    if line is None or not region.replay.complete:
        return None
    called = site_of(sys._getframe(1))
    text = next((part for part in str(error).splitlines()[1:2] or [str(error)]), "")[:200]
    place = Line(line.place, line.library_place)
    return CompiledOnlyFailure(place, region.function, text, "compiling", Line(called.place))


def first_failing(module: torch.fx.GraphModule, fails: Callable[[torch.fx.GraphModule], bool]) -> LineSite | None:
    """The line with which a graph begins to fail: the last of the shortest beginning that does."""
    calls = [node for node in module.graph.nodes if node.op.startswith("call")]
    low, high, end = 0, len(calls) - 1, time.monotonic() + PATIENCE
    while low < high:
        if time.monotonic() > end:
            return None
        middle = (low + high) // 2
        if fails(_beginning(module, calls[middle])):
            high = middle
        else:
            low = middle + 1
    return node_site(calls[low]) if calls else None


def _beginning(module: torch.fx.GraphModule, last: torch.fx.Node) -> torch.fx.GraphModule:
    """The graph up to this node; whatever nobody in it uses is its result."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    done = False
    for node in module.graph.nodes:
        if node.op == "placeholder" or (not done and node.op != "output"):
            copies[node] = graph.node_copy(node, lambda n: copies[n])
        done = done or node is last
    unused = [n for n in copies.values() if not n.users and isinstance(n.meta.get("example_value"), torch.Tensor)]
    graph.output(tuple(node for node in unused if node.op != "placeholder"))
    return torch.fx.GraphModule(module, graph)


def events_of(error: BaseException | None) -> list[StaleSave | CompiledOnlyFailure | RefusedWrite]:
    """Those of an error, or of the one that it was raised from."""
    found: Iterator[Any] = (known for raised in _chain(error) if (known := attributes_of(raised).get(EVENTS)))
    return list(next(found, ()))


def _user_stack(error: BaseException) -> list[Any]:
    """Where in the user's code dynamo was: it raises some errors anew, and only the first ones know."""
    for raised in _chain(error):
        stack = compat_compile.user_stack(attributes_of(raised))
        if stack or not type(raised).__module__.startswith("torch._dynamo"):
            return stack
    return []


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = _cause(error) or _context(error)


def explain_compiling(recorder: Recorder, error: BaseException) -> bool:
    """Tell what is known of an error that was raised while compiling; False when it was not."""
    if told_of(error) is not None:
        return False
    events: list[Any] = list(events_of(error)) or _refused(error)
    if not events and not _user_stack(error):
        return False
    findings = [finding for event in events for finding in recorder.emit(event)]
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]
    # Of an error inside a region that is none of ours, the frames that are left tell no line worth naming.
    return True


def _refused(error: BaseException) -> list[RefusedWrite]:
    """A write that torch refused when dynamo tried it on fakes."""
    reason = reason_of(error)
    site = site_of_summaries(_user_stack(error)) if reason is not None else None
    if reason is None or site is None:
        return []
    name = written_name(site.place)
    write = Write("", "op", Line(whole_statement(site.place), site.library_place))
    return [RefusedWrite(reason, Memory(name), write, origin_line(site.place, name), text=str(error))]

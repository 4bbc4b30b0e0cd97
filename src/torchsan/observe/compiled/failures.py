"""Errors that torch raises while it compiles: what eager would have said of the same lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchsan import compat_compile
from torchsan.model.events import Line, Memory, RefusedWrite, StaleSave, Write
from torchsan.observe import nodes
from torchsan.observe.compiled.lines import site_of_summaries
from torchsan.observe.objects import attributes_of, text_of, told_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import origin_line, reason_of, whole_statement, written_name
from torchsan.observe.stale import StaleFinder

if TYPE_CHECKING:
    from torchsan.observe.compiled.region import Region

EVENTS = "__torchsan_events__"
# Read past whatever the user's own exceptions make of attributes.
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__


def explained_later(recorder: Recorder, error: BaseException, region: Region) -> None:
    """Keep what is known of a failed compilation with its error: told only if the error ends the program."""
    with recorder.shielded():
        if nodes.STALE in text_of(error):
            finder = StaleFinder(recorder, region.replay.ledger)
            events = finder.loud(region.replay.roots, str(error), sys._getframe(1))
            setattr(error, EVENTS, [e for e in events if e.write.line is not None and e.save.line is not None])


def events_of(error: BaseException | None) -> list[StaleSave]:
    """Those of an error, or of the one that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found: Any = attributes_of(error).get(EVENTS)
        if found:
            return list(found)
        error = _cause(error) or _context(error)
    return []


def explain_compiling(recorder: Recorder, error: BaseException) -> bool:
    """Tell what is known of an error that was raised while compiling; False when it was not."""
    if told_of(error) is not None:
        return False
    events: list[Any] = list(events_of(error)) or _refused(error)
    stack = compat_compile.user_stack(attributes_of(error))
    if not events and not stack:
        return False
    findings = [finding for event in events for finding in recorder.emit(event)]
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]
    # Of an error inside a region that is none of ours, the frames that are left tell no line worth naming.
    return True


def _refused(error: BaseException) -> list[RefusedWrite]:
    """A write that torch refused when dynamo tried it on fakes."""
    reason = reason_of(error)
    site = site_of_summaries(compat_compile.user_stack(attributes_of(error))) if reason is not None else None
    if reason is None or site is None:
        return []
    name = written_name(site.place)
    write = Write("", "op", Line(whole_statement(site.place), site.library_place))
    return [RefusedWrite(reason, Memory(name), write, origin_line(site.place, name), text=str(error))]

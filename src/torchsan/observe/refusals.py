"""Errors that torch raises at once: which hazard each is, and whose line."""

from __future__ import annotations

import re
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import torch

from torchsan.model.events import GradientCut, Line, Memory, Reason, RefusedWrite, Write
from torchsan.observe import expressions as syntax
from torchsan.observe.names import local_names, name_memory
from torchsan.observe.sites import USER, frame_place, kind_of, site_of, user_frames
from torchsan.observe.tensors import memory_of

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder

PATTERNS: tuple[tuple[Reason, str], ...] = (
    ("leaf-view", r"a view of a leaf Variable that requires grad"),
    ("leaf", r"leaf Variable that requires grad"),
    ("multi-view", r"is the output of a function that returns multiple views"),
    ("no-grad-view", r"(view was created in no_grad mode|created in inference mode.*view|view.*no_grad)"),
    ("custom-function", r"view was created inside a custom Function|marked as dirty"),
    ("inference", r"[Ii]nference tensor"),
    ("overlap", r"more than one element of the written-to tensor refers to a single memory location"),
    ("parameter-replaced", r"cannot assign .* as parameter"),
)


def reason_of(error: BaseException) -> Reason | None:
    if not isinstance(error, (RuntimeError, TypeError)):
        return None
    text = str(error)
    return next((reason for reason, pattern in PATTERNS if re.search(pattern, text, re.S)), None)


def line_of(frame: FrameType) -> Line:
    site = site_of(frame)
    return Line(whole_statement(site.place), site.library_place)


def whole_statement(place: Any) -> Any:
    """`x[i] = v` instead of the `x[i]` that the instruction covers."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    parent = file.parents.get(node) if file and node is not None else None
    if file and isinstance(parent, syntax.ast.Assign) and node in parent.targets:
        return file.place(parent, place)
    return place


def callers_of(frame: FrameType) -> tuple[Any, ...]:
    """The user's lines above the innermost one, nearest first."""
    return tuple(frame_place(f) for f in user_frames(frame)[1:4])


def written_name(place: Any) -> str:
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None:
        return ""
    expression = syntax.written_expression(node, file)
    return syntax.text_of(expression) if expression is not None else ""


def origin_line(place: Any, name: str) -> Line | None:
    """The line that made the value of a name, in the function of this place."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None or not name.isidentifier():
        return None
    found = syntax.origin(file, node, name)
    if found is None or found[0].lineno == place.line:
        return None
    shown = found[1] if isinstance(found[0], (syntax.ast.For, syntax.ast.With)) else found[0]
    return Line(file.place(shown, place))


def refused(recorder: Recorder, error: BaseException, frame: FrameType, *, op: str = "", tensor: Any = None) -> None:
    """Tell the rules about a write that torch refused, once for each exception."""
    reason = reason_of(error)
    if reason is None or getattr(error, "__torchsan__", None) is not None:
        return
    line = line_of(frame)
    place = site_of(frame).place
    name = written_name(place)
    memory = Memory(name, shape=tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else ())
    if isinstance(tensor, torch.Tensor):
        known = name_memory(memory_of(tensor), frame, memory.shape)
        if known.kind != "tensor" or not name:
            memory = Memory(name or known.name, known.kind, known.shape)
    custom = _custom_function_write(frame, tensor) if reason == "custom-function" else None
    origin = _first_inference_line(frame, name, place) if reason == "inference" else origin_line(place, name)
    event = RefusedWrite(
        reason, memory, Write(op, "op", line, callers=callers_of(frame)), origin, custom, text=str(error)
    )
    findings = recorder.emit(event)
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]


def _first_inference_line(frame: FrameType, name: str, place: Any) -> Line | None:
    """The statement inside `inference_mode` that last bound or updated the name."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None or not name.isidentifier():
        return None
    function = file.function(node)
    for block in syntax.ast.walk(function):
        if not isinstance(block, syntax.ast.With) or block.lineno > place.line:
            continue
        if not any("inference_mode" in syntax.ast.unparse(item.context_expr) for item in block.items):
            continue
        for inner in syntax.ast.walk(block):
            targets = inner.targets if isinstance(inner, syntax.ast.Assign) else [getattr(inner, "target", None)]
            is_binding = isinstance(inner, (syntax.ast.Assign, syntax.ast.AugAssign, syntax.ast.AnnAssign))
            if is_binding and any(t is not None and syntax._binds_target(t, name) for t in targets):
                return Line(file.place(inner, place))  # type: ignore[arg-type]
    return origin_line(place, name)


def _custom_function_write(frame: FrameType, tensor: Any) -> Line | None:
    """The write inside the `forward` of the custom Function that made this tensor."""
    function = getattr(getattr(tensor, "grad_fn", None), "_forward_cls", None)
    if function is None:
        return None
    code = getattr(function.forward, "__code__", None)
    if code is None or kind_of(code) != USER:
        return None
    file = syntax.file_of(code.co_filename)
    if file is None:
        return None
    for node in syntax.ast.walk(file.tree):
        if isinstance(node, syntax.ast.FunctionDef) and node.lineno <= code.co_firstlineno + 3 <= (node.end_lineno or 0) + 3:
            if node.name != "forward" or not (node.lineno - 3 <= code.co_firstlineno <= node.lineno):
                continue
            for inner in syntax.ast.walk(node):
                if isinstance(inner, (syntax.ast.AugAssign, syntax.ast.Call, syntax.ast.Assign)):
                    if syntax.written_expression(inner, file) is not None:
                        place = file.place(inner, frame_place(frame))
                        return Line(place)
    return None


def explain_uncaught(recorder: Recorder, error: BaseException) -> None:
    """Last chance for an exception that no sensor saw at its origin."""
    frame = innermost_user_frame(error.__traceback__)
    if frame is None or getattr(error, "__torchsan__", None) is not None:
        return
    at, lasti = frame
    reason = reason_of(error)
    if reason == "parameter-replaced":
        _parameter_replaced(recorder, error, at, lasti)
    elif reason is not None:
        _refused_at(recorder, error, reason, at, lasti)


def _place_at(frame: FrameType, lasti: int) -> Any:
    from torchsan.observe.sites import place_in

    return place_in(frame.f_code, lasti)


def _refused_at(recorder: Recorder, error: BaseException, reason: Reason, frame: FrameType, lasti: int) -> None:
    place = _place_at(frame, lasti)
    name = written_name(place)
    callers = tuple(_place_at(f, i) for f, i in traceback_frames(error.__traceback__)[1:4])
    write = Write("", "op", Line(whole_statement(place)), callers=callers)
    findings = recorder.emit(RefusedWrite(reason, Memory(name), write, origin_line(place, name), text=str(error)))
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]


def _parameter_replaced(recorder: Recorder, error: BaseException, frame: FrameType, lasti: int) -> None:
    place = _place_at(frame, lasti)
    match = re.search(r"as parameter '([^']+)'", str(error))
    name = match.group(1) if match else ""
    owner = "self" if "self" in local_names(frame) else ""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if isinstance(node, syntax.ast.Attribute):
        name, owner = syntax.text_of(node), ""
    shown = f"{owner}.{name}" if owner else name
    callers = tuple(_place_at(f, i) for f, i in traceback_frames(error.__traceback__)[1:4])
    write = Write("=", "op", Line(whole_statement(place)), callers=callers)
    findings = recorder.emit(RefusedWrite("parameter-replaced", Memory(shown, "parameter"), write, text=str(error)))
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]


def traceback_frames(traceback: TracebackType | None) -> list[tuple[FrameType, int]]:
    """The user's frames of a traceback with the instruction each was at, innermost first."""
    found = []
    while traceback is not None:
        if kind_of(traceback.tb_frame.f_code) == USER:
            found.append((traceback.tb_frame, traceback.tb_lasti))
        traceback = traceback.tb_next
    return found[::-1]


def innermost_user_frame(traceback: TracebackType | None) -> tuple[FrameType, int] | None:
    frames = traceback_frames(traceback)
    return frames[0] if frames else None


__all__ = ["GradientCut", "explain_uncaught", "refused"]

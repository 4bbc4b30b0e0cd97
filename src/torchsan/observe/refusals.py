"""Errors that torch raises at once: which hazard each is, and whose line."""

from __future__ import annotations

import ast
import re
from types import FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

from torchsan import compat
from torchsan.model import Place
from torchsan.model.events import Line, Memory, Reason, RefusedWrite, Write
from torchsan.observe import expressions as syntax
from torchsan.observe import nodes
from torchsan.observe.names import local_names, name_memory
from torchsan.observe.objects import class_attribute, is_tensor, text_of, told_of
from torchsan.observe.sites import USER, frame_place, kind_of, place_in, site_of, user_frames
from torchsan.observe.tensors import is_inference, memory_of, shape_of

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder

PATTERNS: tuple[tuple[Reason, str], ...] = (
    ("leaf-view", r"a view of a leaf Variable that requires grad"),
    ("leaf", r"leaf Variable that requires grad"),
    ("detached-view", r"Can't detach views in-place"),
    ("multi-view", r"is the output of a function that returns multiple views"),
    ("no-grad-view", r"(view was created in no_grad mode|created in inference mode.*view|view.*no_grad)"),
    ("custom-function", r"view was created inside a custom Function|marked as dirty"),
    ("inference", r"[Ii]nference tensor"),
    ("overlap", r"more than one element of the written-to tensor refers to a single memory location"),
    (
        "operand-overlap",
        r"of the input tensor and the written-to tensor refer to a single memory location",
    ),
    ("parameter-replaced", r"cannot assign .* as parameter"),
)


def reason_of(error: BaseException) -> Reason | None:
    text = text_of(error)
    return next((reason for reason, pattern in PATTERNS if re.search(pattern, text, re.S)), None)


def line_of(frame: FrameType) -> Line:
    site = site_of(frame)
    return Line(whole_statement(site.place), site.library_place)


def whole_statement(place: Place) -> Place:
    """`x[i] = v` instead of the `x[i]` that the instruction covers."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    parent = file.parents.get(node) if file and node is not None else None
    if file and isinstance(parent, ast.Assign) and node in parent.targets:
        return file.place(parent, place)
    return place


def right_hand_side(place: Place) -> str:
    """The text of the value that the assignment at this place assigns; empty when there is none."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    return ast.unparse(node.value) if isinstance(node, ast.Assign) else ""


def callers_of(frame: FrameType) -> tuple[Place, ...]:
    """The user's lines above the innermost one, nearest first."""
    return tuple(frame_place(f) for f in user_frames(frame)[1:4])


def written_name(place: Place) -> str:
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None:
        return ""
    expression = syntax.written_expression(node, file)
    return syntax.text_of(expression) if expression is not None else ""


def origin_line(place: Place, name: str) -> Line | None:
    """The line that made the value of a name, in the function of this place."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None or not name.isidentifier():
        return None
    found = syntax.origin(file, node, name)
    if found is None or found[0].lineno == place.line:
        return None
    shown = found[1] if isinstance(found[0], (ast.For, ast.With)) else found[0]
    return Line(file.place(shown, place))


def refused(recorder: Recorder, error: BaseException, frame: FrameType, *, op: str = "", tensor: Any = None) -> None:
    """Tell the rules about a write that torch refused, once for each exception."""
    reason = reason_of(error)
    if reason is None or told_of(error) is not None:
        return
    line = line_of(frame)
    place = site_of(frame).place
    name = written_name(place)
    memory = Memory(name, shape=shape_of(tensor) if is_tensor(tensor) else ())
    if is_tensor(tensor):
        known = name_memory(memory_of(tensor), frame, memory.shape)
        if known.kind != "tensor" or not name:
            memory = Memory(name or known.name, known.kind, known.shape)
    custom = _custom_function_write(frame, tensor) if reason == "custom-function" else None
    origin = _origin(reason, name, place, tensor)
    event = RefusedWrite(
        reason, memory, Write(op, "op", line, callers=callers_of(frame)), origin, custom, text=str(error)
    )
    findings = recorder.emit(event)
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]


def _origin(reason: Reason, name: str, place: Place, tensor: Any) -> Line | None:
    """Several views: where autograd recorded the op that returned them, a loop over a tensor or a split."""
    if reason == "inference":
        return _first_inference_line(name, place)
    node = compat.grad_fn_of(tensor) if reason == "multi-view" and is_tensor(tensor) else None
    made = nodes.line_of_node(node) if node is not None else None
    return made if made is not None else origin_line(place, name)


def _first_inference_line(name: str, place: Place) -> Line | None:
    """The statement inside `inference_mode` that last bound or updated the name."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if file is None or node is None or not name.isidentifier():
        return None
    function = file.function(node)
    for block in ast.walk(function):
        if not isinstance(block, ast.With) or block.lineno > place.line:
            continue
        if not any("inference_mode" in ast.unparse(item.context_expr) for item in block.items):
            continue
        for inner in ast.walk(block):
            if not isinstance(inner, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                continue
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            if any(syntax.binds_target(target, name) for target in targets):
                return Line(file.place(inner, place))
    return origin_line(place, name)


def _inference_name(frame: FrameType, place: Place) -> str:
    """The only variable in the expression at a place that is a tensor of inference mode."""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    known = local_names(frame)
    read = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)) if node is not None else ()
    found = [name for name in read if is_tensor(known.get(name)) and is_inference(known[name])]
    return found[0] if len(found) == 1 else ""


def _custom_function_write(frame: FrameType, tensor: Any) -> Line | None:
    """The write inside the `forward` of the custom Function that made this tensor."""
    node = compat.grad_fn_of(tensor) if is_tensor(tensor) else None
    function = class_attribute(type(node), "_forward_cls")
    forward = class_attribute(function, "forward") if function is not None else None
    forward = forward.__func__ if type(forward) is staticmethod else forward
    if type(forward) is not FunctionType or kind_of(forward.__code__) != USER:
        return None
    code = forward.__code__
    file = syntax.file_of(code.co_filename)
    definition = file.definition(code) if file is not None else None
    if file is None or definition is None:
        return None
    for inner in ast.walk(definition):
        if isinstance(inner, (ast.AugAssign, ast.Call, ast.Assign)) and syntax.written_expression(inner, file):
            return Line(file.place(inner, place_in(code, 0)))
    return None


def explain_uncaught(recorder: Recorder, error: BaseException) -> None:
    """Last chance for an exception that no sensor saw at its origin."""
    frame = innermost_user_frame(error.__traceback__)
    if frame is None or told_of(error) is not None:
        return
    at, lasti = frame
    reason = reason_of(error)
    if reason == "parameter-replaced":
        _parameter_replaced(recorder, error, at, lasti)
    elif reason is not None:
        _refused_at(recorder, error, reason, at, lasti)


def _refused_at(recorder: Recorder, error: BaseException, reason: Reason, frame: FrameType, lasti: int) -> None:
    place = place_in(frame.f_code, lasti)
    name = written_name(place) or (_inference_name(frame, place) if reason == "inference" else "")
    callers = tuple(place_in(f.f_code, i) for f, i in traceback_frames(error.__traceback__)[1:4])
    write = Write("", "op", Line(whole_statement(place)), callers=callers)
    origin = _origin(reason, name, place, local_names(frame).get(name))
    findings = recorder.emit(RefusedWrite(reason, Memory(name), write, origin, text=str(error)))
    error.__torchsan__ = findings or True  # type: ignore[attr-defined]


def _parameter_replaced(recorder: Recorder, error: BaseException, frame: FrameType, lasti: int) -> None:
    place = place_in(frame.f_code, lasti)
    match = re.search(r"as parameter '([^']+)'", str(error))
    name = match.group(1) if match else ""
    owner = "self" if "self" in local_names(frame) else ""
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    if isinstance(node, ast.Attribute):
        name, owner = syntax.text_of(node), ""
    shown = f"{owner}.{name}" if owner else name
    callers = tuple(place_in(f.f_code, i) for f, i in traceback_frames(error.__traceback__)[1:4])
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

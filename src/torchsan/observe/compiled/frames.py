"""Frames for lines that were traced: compiled code has none of its own, and evidence is read off frames.

Each stands at an instruction of the code that its source compiles to. What a variable held at that line dynamo has
told, where it stands for memory from outside. Where dynamo does not tell, it is known of those that the region was
called with and that their function never binds again, and of the one that is written.
"""

from __future__ import annotations

import ast
import dis
import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch.fx

from torchsan import compat_compile
from torchsan.model import Place
from torchsan.model.source import shown_path
from torchsan.observe import expressions as syntax
from torchsan.observe.compiled.instructions import code_of, instruction_at
from torchsan.observe.compiled.lines import LineSite, node_site
from torchsan.observe.compiled.scopes import Scopes
from torchsan.observe.names import local_names
from torchsan.observe.objects import attribute_of
from torchsan.observe.sites import USER, Site, frame_place, kind_of, place_in, register


class _Code:
    """Stands for the code of a line that runs compiled, for those who ask a frame where it is."""

    co_flags = 0
    co_argcount = co_kwonlyargcount = 0
    co_varnames: tuple[str, ...] = ()

    def __init__(self, site: Site) -> None:
        self.co_filename = site.place.path
        self.co_name = self.co_qualname = site.place.function


class RegionFrame:
    """A frame at a line of a region, as far as guards of writes look at frames."""

    f_lasti = 0

    def __init__(self, site: Site, back: FrameType) -> None:
        self.f_code: Any = register(_Code(site), site)
        self.f_back = back
        self.f_globals = back.f_globals
        self.f_locals: dict[str, Any] = {}


class TracedFrame:
    """A frame at a traced line, as far as evidence looks at frames."""

    def __init__(self, code: CodeType, lasti: int, names: dict[str, Any], namespace: dict[str, Any], back: Any) -> None:
        self.f_code = code
        self.f_lasti = lasti
        self.f_globals = namespace
        self.f_back = back
        self._names = names

    @property
    def f_locals(self) -> dict[str, Any]:
        """A copy: whoever reads the variables of a frame may empty what he is given."""
        return dict(self._names)

    @property
    def f_lineno(self) -> int:
        return place_in(self.f_code, self.f_lasti).line


def traced_frame(site: Site, called: FrameType, written: Any, scopes: Scopes = ()) -> Any | None:
    """The frame in which this line of a region that is called here would write; None where the source does not tell.

    `written`: the tensor that the line writes, known by its name if it is one. `scopes`: what dynamo knew there.
    """
    generated = _generated(called)
    back = _caller(generated if generated is not None else called)
    if not isinstance(site, LineSite) or kind_of_place(site.place) != USER or generated is None:
        return back
    places = [scope.place for scope in scopes] or [site.place, *site.above]
    spots: list[tuple[CodeType, int] | None] = [(scope.code, scope.lasti) for scope in scopes]
    spots = spots or [instruction_at(place) for place in places]
    frame: Any = back
    for depth in range(len(spots) - 1, -1, -1):
        spot = spots[depth]
        if spot is None:
            return None
        code, lasti = spot
        outermost = depth == len(spots) - 1
        names = _kept_names(code, generated) if outermost else {}
        names.update(scopes[depth].names if scopes else {})
        if depth == 0 and (name := _written_name(site.place)):
            names.setdefault(name, written)
        namespace = generated.f_globals if outermost else _globals_of(places[depth].path)
        frame = TracedFrame(code, lasti, names, namespace, frame)
    return frame


def kind_of_place(place: Place) -> int:
    code = code_of(place.path)
    return kind_of(code) if code is not None else -1


def _generated(frame: FrameType | None) -> FrameType | None:
    """The code that dynamo wrote and that calls the region."""
    while frame is not None and not compat_compile.is_generated(frame.f_code):
        frame = frame.f_back
    return frame


def _caller(frame: FrameType) -> FrameType | None:
    """Who called the compiled function: code that dynamo wrote counts only where it stands at a call."""
    called = {frame.f_code.co_name}
    at = frame.f_back
    while at is not None and (kind_of(at.f_code) != USER or not stands_at_call(at, called)):
        called.add(at.f_code.co_name)
        at = at.f_back
    return at


def stands_at_call(frame: FrameType, called: set[str]) -> bool:
    """Code that dynamo wrote also has instructions that are on no line: believe it only at a call of what runs."""
    if not compat_compile.is_generated(frame.f_code):
        return True
    place = frame_place(frame)
    file = syntax.file_of(place.path)
    call = file.at(place) if file is not None else None
    return isinstance(call, ast.Call) and syntax.text_of(call.func).rpartition(".")[2] in called


# -- variables ---------------------------------------------------------------------------------------


def _kept_names(code: CodeType, generated: FrameType) -> dict[str, Any]:
    """Variables that hold at every line what they held when the region was called."""
    bound = {i.argval for i in dis.get_instructions(code) if i.opname.startswith(("STORE_", "DELETE_"))}
    own = {*code.co_varnames, *code.co_freevars}
    return {name: value for name, value in local_names(generated).items() if name in own and name not in bound}


def _written_name(place: Place) -> str:
    file = syntax.file_of(place.path)
    node = file.at(place) if file else None
    written = syntax.written_expression(node, file) if file and node is not None else None
    return written.id if isinstance(written, ast.Name) else ""


@lru_cache(maxsize=64)
def _module_at(path: str) -> str | None:
    for name, module in list(sys.modules.items()):
        found = attribute_of(module, "__file__")
        if type(found) is str and shown_path(found) == path:
            return name
    return None


def _globals_of(path: str) -> dict[str, Any]:
    name = _module_at(path)
    return vars(sys.modules[name]) if name is not None and name in sys.modules else {}


# -- frames of code that dynamo wrote ----------------------------------------------------------------


def whole_frames(frames: list[FrameType]) -> list[FrameType]:
    """The same frames, innermost first; for code that dynamo wrote stands the user's own, where that is known.

    At a graph break such code keeps what it will go on with on its stack: the variables of the function are not there,
    nor are the lines that follow.
    """
    found: list[FrameType] = []
    for frame in frames:
        generated = isinstance(frame, FrameType) and compat_compile.is_generated(frame.f_code)
        found.append(_users_own(frame, found[-1]) if generated and found else frame)
    return found


def _users_own(frame: FrameType, inner: FrameType) -> Any:
    place = frame_place(frame)
    spot, file = instruction_at(place), syntax.file_of(place.path)
    call = file.at(place) if file is not None else None
    if spot is None or not isinstance(call, ast.Call):
        return frame
    names = {**_handed_over(call, inner), **local_names(frame)}
    return TracedFrame(*spot, names, frame.f_globals, frame.f_back)


def _handed_over(call: ast.Call, inner: FrameType) -> dict[str, Any]:
    """The variables of a call's arguments have the values that the called function has."""
    code, values = inner.f_code, local_names(inner)
    taken = list(code.co_varnames[: code.co_argcount])
    # `module(x)` is `forward(self, x)`, and `Function.apply(x)` is `forward(ctx, x)`.
    taken = taken[max(0, len(taken) - len(call.args)) :] if len(taken) == len(call.args) + 1 else taken
    pairs = [*zip(call.args, taken, strict=False), *((k.value, k.arg) for k in call.keywords)]
    return {node.id: values[name] for node, name in pairs if isinstance(node, ast.Name) and name in values}


def name_lines(module: torch.fx.GraphModule) -> None:
    """Let every instruction of a graph's own code stand for the line that it was traced from."""
    known = compat_compile.code_lines(module)
    if known is None:
        return
    code, lines = known
    for index, (line, *_) in enumerate(code.co_positions()):
        site = node_site(lines[line]) if line in lines else None
        if site is not None:
            register(code, site, index * 2)

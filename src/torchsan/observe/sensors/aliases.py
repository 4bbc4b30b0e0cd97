"""Watches for memory that has two names: the caller's input, a default argument, one buffer held many times.

Looks closely only at the first few executions of each writing line, so that a training loop pays once.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from torchsan import compat
from torchsan.model.events import (
    AliasedSnapshot,
    GradientEdited,
    InputOverwritten,
    Line,
    Memory,
    OverlapWritten,
    SharedDefaultWritten,
    Write,
)
from torchsan.observe import expressions as syntax
from torchsan.observe.constructors import constructor_of
from torchsan.observe.names import local_names
from torchsan.observe.objects import attributes_of, class_members, is_a, is_tensor
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import callers_of, whole_statement, written_name
from torchsan.observe.sites import Site, frame_place, user_frames
from torchsan.observe.tensors import fingerprint, is_plain, memory_of

# Names of arguments that functions are meant to fill in place.
FILLED = (
    "out",
    "buf",
    "buffer",
    "cache",
    "state",
    "memory",
    "mem",
    "dest",
    "target",
    "hidden",
    "result",
    "acc",
)


# How many hold a gradient inside a hook when no other path of backward needs it: the engine and the hook.
ALONE = 2


@dataclass(slots=True)
class Token:
    """What must be looked at again after the write."""

    tensor: torch.Tensor
    before: object
    event: InputOverwritten


class AliasWatch:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # How many references to the written tensor the sensor that asks us has itself.
        self.sensor_holds = 0

    def before(
        self,
        op: str,
        site: Site,
        tensor: Any,
        memory: int,
        args: tuple[Any, ...],
        frame: FrameType,
        seen: int,
    ) -> Token | None:
        if not is_plain(tensor) or tensor.numel() == 0:
            return None
        frames = user_frames(frame)
        if not frames:
            return None
        if self.recorder.backward is not None:
            self._gradient_edited(op, site, tensor, memory, frames[0], frame)
            return None
        if op == "__setitem__" and seen == 0:
            self._overlap(tensor, site, args, frame)
        if seen >= 1:
            self._stored_sample(op, site, tensor, memory, frames, frame)
            self._shared_default(op, site, memory, frames, frame)
            self._held_many_times(op, site, memory, frames, frame)
        event = self._caller_reads_again(op, site, tensor, memory, frames, frame)
        return Token(tensor, fingerprint(tensor), event) if event is not None else None

    def after(self, token: Token) -> None:
        if token.before is not None and fingerprint(token.tensor) != token.before:
            self.recorder.emit(token.event)

    # -- gradients ----------------------------------------------------------------------------------

    def _gradient_edited(
        self, op: str, site: Site, tensor: torch.Tensor, memory: int, hook: FrameType, frame: FrameType
    ) -> None:
        """A hook writes its argument. Only the engine and the hook hold a gradient that is the hook's alone."""
        # A backward for given inputs (`autograd.grad`) holds on to their gradients: what it hands back.
        alone = ALONE + self.recorder.backward_keeps_gradients + self.sensor_holds
        if tensor.requires_grad or tensor._use_count() <= alone or not _is_argument(memory, hook):
            return
        backward = self.recorder.backward
        write = Write(op, "op", Line(whole_statement(site.place), site.library_place))
        needed = Line(backward.place) if backward is not None else None
        self.recorder.emit(GradientEdited(Memory(written_name(site.place)), write, needed))

    # -- expanded memory ----------------------------------------------------------------------------

    def _overlap(self, tensor: torch.Tensor, site: Site, args: tuple[Any, ...], frame: FrameType) -> None:
        """`expanded[i] = v` changes every row that shares the memory of row i."""
        shared = [d for d, (n, s) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)) if s == 0 and n > 1]
        if not shared or len(args) < 2:
            return
        try:
            with compat.unseen():
                target = tensor[args[1]]
        except Exception:
            return
        if target.numel() == 0 or memory_of(target) != memory_of(tensor):
            return
        name = written_name(site.place)
        line = Line(whole_statement(site.place), site.library_place)
        copies = 1
        for d in shared:
            copies *= tensor.shape[d]
        write = Write("__setitem__", "op", line, callers=callers_of(frame))
        origin = self._maker(site.place, name, frame)
        self.recorder.emit(OverlapWritten(Memory(name, shape=tuple(tensor.shape)), write, origin, copies))

    def _maker(self, place: Any, name: str, frame: FrameType) -> Line | None:
        """Where a name got its value; through one call of a function in the same file to its `return`."""
        file = syntax.file_of(place.path)
        node = file.at(place) if file else None
        if file is None or node is None or not name.isidentifier():
            return None
        found = syntax.origin(file, node, name)
        if found is None:
            return None
        statement, value = found
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            for function in ast.walk(file.tree):
                if isinstance(function, ast.FunctionDef) and function.name == value.func.id:
                    for inner in ast.walk(function):
                        if isinstance(inner, ast.Return) and inner.value and "expand" in ast.unparse(inner.value):
                            return Line(file.place(inner.value, place))
        return Line(file.place(statement, place))

    # -- the caller's tensor ------------------------------------------------------------------------

    def _caller_reads_again(
        self,
        op: str,
        site: Site,
        tensor: torch.Tensor,
        memory: int,
        frames: list[FrameType],
        frame: FrameType,
    ) -> InputOverwritten | None:
        """Find a caller that passed this very memory by name and goes on reading that name."""
        place = site.place
        file = syntax.file_of(place.path)
        node = file.at(place) if file else None
        if file is None or node is None or not tensor.is_floating_point():
            return None
        explicit = syntax.written_expression(node, file)
        level = 0
        if explicit is not None:
            if not _writes_its_argument(node, explicit, file) or not _looks_unintended(node, file):
                return None
            level = 1
        as_new = explicit is not None and _gets_another_name(node, explicit, file)
        for index in range(level, min(len(frames), 6)):
            event = self._reads_again(op, site, tensor, memory, frames[index], as_new, frame)
            if event is not None:
                return event
            if not _is_argument(memory, frames[index]):
                return None
        return None

    def _reads_again(
        self,
        op: str,
        site: Site,
        tensor: torch.Tensor,
        memory: int,
        caller: FrameType,
        as_new: bool,
        frame: FrameType,
    ) -> InputOverwritten | None:
        at = frame_place(caller)
        file = syntax.file_of(at.path)
        call = file.at(at) if file else None
        if file is None or not isinstance(call, ast.Call):
            return None
        values = local_names(caller)
        passed = [
            argument.id
            for argument in (*call.args, *(k.value for k in call.keywords))
            if isinstance(argument, ast.Name) and _has_memory(values.get(argument.id), memory)
        ]
        statement = file.statement(call)
        if not passed or statement is None:
            return None
        # A bare call is made for its effect, unless the callee used the written value as a new one.
        if isinstance(statement, ast.Expr) and statement.value is call and not as_new:
            return None
        if syntax.text_of(call.func).rpartition(".")[2].endswith("_"):
            return None
        read = syntax.read_again(file, call, passed[0])
        if read is None or _only_form(read, file):
            return None
        line = Line(whole_statement(site.place), site.library_place)
        write = Write(op, "op", line, callers=callers_of(frame))
        return InputOverwritten(
            memory=Memory(passed[0], shape=tuple(tensor.shape)),
            write=write,
            called=Line(at),
            read=file.place(read, at),
            callee=syntax.text_of(call.func),
            constructor=constructor_of(frame),
        )

    # -- state shared by calls ----------------------------------------------------------------------

    def _shared_default(self, op: str, site: Site, memory: int, frames: list[FrameType], frame: FrameType) -> None:
        code = frames[0].f_code
        if code.co_name == "<module>":
            return
        line = Line(whole_statement(site.place), site.library_place)
        write = Write(op, "op", line, callers=callers_of(frame))
        function = _function_of(frames[0])
        for name, default in _defaults(function):
            if _has_memory(default, memory):
                self.recorder.emit(SharedDefaultWritten(Memory(name), write, "default", code.co_qualname))
                return
        for name, value in frames[0].f_globals.items():
            if name.isupper() and _has_memory(value, memory) and not name.startswith("_"):
                self.recorder.emit(SharedDefaultWritten(Memory(name), write, "global", code.co_qualname))
                return

    def _stored_sample(
        self, op: str, site: Site, tensor: torch.Tensor, memory: int, frames: list[FrameType], frame: FrameType
    ) -> None:
        """A data set that hands out views of what it stores, and changes them on the way: again at every visit."""
        code = frames[0].f_code
        if code.co_name not in ("__getitem__", "__iter__", "__next__") or not tensor.is_floating_point():
            return
        owner = local_names(frames[0]).get("self")
        stored = [k for k, v in attributes_of(owner).items() if _has_memory(v, memory)]
        file = syntax.file_of(site.place.path)
        node = file.at(site.place) if file else None
        written = syntax.written_expression(node, file) if file and node is not None else None
        if not stored or file is None or not isinstance(written, ast.Name):
            return
        name = written.id
        handed_out = any(
            isinstance(n, (ast.Return, ast.Yield)) and n.value is not None and name in ast.unparse(n.value)
            for n in ast.walk(file.function(written))
        )
        if handed_out:
            line = Line(whole_statement(site.place), site.library_place)
            write = Write(op, "op", line, callers=callers_of(frame))
            self.recorder.emit(
                SharedDefaultWritten(Memory(name), write, "stored", code.co_qualname, f"self.{stored[0]}")
            )

    def _held_many_times(self, op: str, site: Site, memory: int, frames: list[FrameType], frame: FrameType) -> None:
        """A list that holds this memory twice or more while it is written again: all entries are one."""
        for holder in frames[:2]:
            for name, value in _lists_of(holder):
                if type(value) is not list or not 2 <= len(value) <= 10_000:
                    continue
                # A tensor at the end of the list was just put there; look at the last few only.
                same = sum(_has_memory(item, memory) and _whole(item) for item in value[-8:])
                if same >= 2 and not _is_parameter_list(value):
                    line = Line(whole_statement(site.place), site.library_place)
                    shown = written_name(site.place)
                    taken = self._appended(frame_place(holder), name)
                    write = Write(op, "op", line, callers=callers_of(frame))
                    self.recorder.emit(
                        AliasedSnapshot(Memory(shown or name), taken, write, None, "list", name, len(value))
                    )
                    return

    def _appended(self, near: Any, name: str) -> Line | None:
        file = syntax.file_of(near.path)
        if file is None:
            return None
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("append", "insert")
                and syntax.text_of(node.func.value) == name
            ):
                return Line(file.place(node, near))
        return None


def _lists_of(frame: FrameType) -> list[tuple[str, Any]]:
    """Lists that a frame can see: its own, and those of `self`."""
    values = local_names(frame)
    found = list(values.items())
    owner = values.get("self")
    return found + [(f"self.{name}", value) for name, value in attributes_of(owner).items()]


def _has_memory(value: Any, memory: int) -> bool:
    return is_tensor(value) and memory_of(value) == memory


def _whole(tensor: torch.Tensor) -> bool:
    """Not a slice: rows of one big tensor share memory and yet are different values."""
    try:
        return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())
    except Exception:
        return False


def _is_parameter_list(values: list[Any]) -> bool:
    return all(is_plain(v) and v.is_leaf and v.requires_grad for v in values)


def _is_argument(memory: int, frame: FrameType) -> bool:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    values = local_names(frame)
    return any(_has_memory(values.get(name), memory) for name in code.co_varnames[:count])


def _writes_its_argument(node: ast.AST, written: ast.expr, file: syntax.File) -> bool:
    return isinstance(written, ast.Name) and written.id in syntax.parameters(file.function(node))


def _looks_unintended(node: ast.AST, file: syntax.File) -> bool:
    """Does the function treat the written argument as a value of its own, not as a thing to fill?

    `y = x.mul_(2)` does: the result gets another name. So does `x += 1` in a function that returns a value
    and does not advertise itself as in-place. `buffer[i] = v` and procedures that return nothing do not.
    """
    function = file.function(node)
    name = getattr(function, "name", "")
    if name.endswith("_") or name.startswith(("init", "reset", "_init", "update", "fill", "set_", "copy")):
        return False
    written = syntax.written_expression(node, file)
    if isinstance(written, ast.Name) and any(word in written.id.lower() for word in FILLED):
        return False
    if _gets_another_name(node, written, file):
        return True
    if not isinstance(node, (ast.AugAssign, ast.Call)):
        return False
    if isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Name):
        return False
    return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))


def _gets_another_name(node: ast.AST, written: ast.expr | None, file: syntax.File) -> bool:
    """`y = x.mul_(2)`: the written value goes on under a name of its own."""
    statement = file.statement(node)
    if not isinstance(node, ast.Call) or not isinstance(statement, ast.Assign):
        return False
    bound = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return not (isinstance(written, ast.Name) and written.id in bound)


def _only_form(read: ast.expr, file: syntax.File) -> bool:
    """`x.shape`, `x.size(0)`, `len(x)`: the form of a tensor, which a write does not change."""
    parent = file.parents.get(read)
    if isinstance(parent, ast.Attribute):
        return parent.attr in (
            "shape",
            "size",
            "dim",
            "ndim",
            "device",
            "dtype",
            "numel",
            "is_cuda",
            "requires_grad",
        )
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ("len", "type")


def _function_of(frame: FrameType) -> Any:
    """The function object that a frame runs, found by its qualified name."""
    code: CodeType = frame.f_code
    at: Any = None
    for index, part in enumerate(code.co_qualname.split(".")):
        held = frame.f_globals if index == 0 else class_members(at) if is_a(at, type) else {}
        at = held.get(part)
        at = at.__func__ if type(at) in (staticmethod, classmethod) else at
    while type(at) is FunctionType and at.__code__ is not code:
        at = attributes_of(at).get("__wrapped__")
    return at if type(at) is FunctionType else None


def _defaults(function: Any) -> list[tuple[str, Any]]:
    if function is None:
        return []
    code = function.__code__
    positional = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
    return [*zip(names, positional, strict=True), *(function.__kwdefaults__ or {}).items()]

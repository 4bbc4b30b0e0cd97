"""Saved values under our own eyes: `heal()` keeps them when they are written, `AtWrite` reports the write.

Every save is handed to a small handle, by saved-tensor hooks. A write to memory that live handles point to is
then known when it is made. Handles work after the block that made them has ended.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

from torchsan import compat
from torchsan.model import Report
from torchsan.model.events import Line, Memory, Save, StaleSave, Write
from torchsan.observe import nodes
from torchsan.observe.guards import guards
from torchsan.observe.names import in_modules
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement, written_name
from torchsan.observe.sites import Site, site_of, user_frames
from torchsan.observe.tensors import memory_of
from torchsan.observe.writing import inside_step

_detach = torch._C.TensorBase.detach
_getframe = sys._getframe
_SWEEP = 4096


class Handle:
    """One saved value: where it was saved, and where its memory was then written."""

    __slots__ = ("__weakref__", "memory", "site", "tensor", "version", "writer")

    def __init__(self, tensor: torch.Tensor, site: Site, memory: int | None) -> None:
        self.memory = memory
        self.tensor = tensor
        self.site = site
        self.version = -1 if tensor.is_inference() else tensor._version
        self.writer: Write | None = None


class SavedValues:
    """Handles by memory. Keeps no value alive: only the graph holds handles."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._handles: dict[int, list[weakref.ref[Handle]]] = {}
        self._sweep_at = _SWEEP
        self._hooks: Any = None

    def start(self) -> None:
        guards.add(self.before_write)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self._hooks.__enter__()

    def stop(self) -> None:
        self._hooks.__exit__(None, None, None)
        guards.remove(self.before_write)

    def pack(self, tensor: torch.Tensor) -> Handle:
        # A detached alias: to keep the tensor itself would keep its graph in a circle.
        memory = memory_of(tensor)
        handle = Handle(_detach(tensor), site_of(_getframe(1)), memory)
        if memory is not None:
            known = self._handles.get(memory)
            if known is None:
                if len(self._handles) > self._sweep_at:
                    self._sweep()
                self._handles[memory] = [weakref.ref(handle)]
            else:
                known.append(weakref.ref(handle))
        return handle

    def unpack(self, handle: Handle) -> torch.Tensor:
        raise NotImplementedError

    def written(self, handle: Handle, tensor: torch.Tensor, write: Write, frame: FrameType) -> None:
        raise NotImplementedError

    def before_write(self, tensors: tuple[Any, ...], frame: FrameType) -> None:
        for tensor in tensors:
            memory = memory_of(tensor)
            references = self._handles.pop(memory, None) if memory is not None else None
            alive = [h for h in (reference() for reference in references or ()) if h is not None]
            if not alive:
                continue
            site = site_of(frame)
            line = Line(whole_statement(site.place), site.library_place)
            write = Write("optimizer.step", "optimizer", line) if inside_step(frame.f_code) else Write("", "op", line)
            for handle in alive:
                self.written(handle, tensor, write, frame)

    def _sweep(self) -> None:
        for memory, references in list(self._handles.items()):
            if not any(reference() is not None for reference in references):
                del self._handles[memory]
        self._sweep_at = max(_SWEEP, 2 * len(self._handles))

    def tell(self, handle: Handle, op: str, write: Write, frame: FrameType, needed: Site | None) -> None:
        owned = in_modules(handle.memory, user_frames(frame)) if handle.memory is not None else None
        shown = written_name(write.line.place) if write.line is not None else ""
        self.recorder.emit(
            StaleSave(
                memory=owned or Memory(shown, shape=tuple(handle.tensor.shape)),
                save=Save(op, "", Line(handle.site.place, handle.site.library_place)),
                write=write,
                needed=Line(needed.place, needed.library_place) if needed is not None else None,
                silent=False,
            )
        )


class _Kept(SavedValues):
    """Copy-on-write: a handle whose memory is about to change takes a copy with it."""

    def written(self, handle: Handle, tensor: torch.Tensor, write: Write, frame: FrameType) -> None:
        handle.tensor = handle.tensor.clone()
        handle.writer = write

    def unpack(self, handle: Handle) -> torch.Tensor:
        if handle.writer is not None:
            frame = _getframe(1)
            node = compat.current_node()
            with self.recorder.shielded():
                self.tell(
                    handle,
                    nodes.op_name(node) if node is not None else "",
                    handle.writer,
                    frame,
                    site_of(frame),
                )
            handle.writer = None
        return handle.tensor


class AtWrite(SavedValues):
    """Reports a write to a saved value when it is made; torch's check at backward is made here instead."""

    def written(self, handle: Handle, tensor: torch.Tensor, write: Write, frame: FrameType) -> None:
        with self.recorder.shielded():
            self.tell(handle, "", write, frame, None)

    def unpack(self, handle: Handle) -> torch.Tensor:
        tensor = handle.tensor
        if handle.version >= 0 and tensor._version != handle.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version "
                f"{handle.version} instead."
            )
        return tensor


class heal:
    """Keep saved values when their memory is written, so that training goes on with right gradients.

        with torchsan.heal() as report:
            loss = model(x)
        loss.backward()

    Nothing is copied where nothing is written. The report lists what was kept and then needed: the lines to mend.
    """

    def __init__(self, *, codes: Iterable[CodeType] = ()) -> None:
        self.report = Report()
        # Code that no import will show: that of a main script.
        self._codes = tuple(codes)
        self._writes: Recorder | None = None
        self._kept: _Kept | None = None

    def __enter__(self) -> Report:
        self._writes = Recorder(self.report, judging=False)
        self._writes.codes.extend(self._codes)
        self._writes.start()
        self._kept = _Kept(Recorder(self.report))
        self._kept.start()
        return self.report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._kept is not None and self._writes is not None:
            self._kept.stop()
            self._writes.stop()

"""Watches captures: steps aside for code that looks at torch's own functions, and checks what was captured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.export

from torchsan import compat
from torchsan.observe.imports import after_import
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import USER, kind_of

_getframe = sys._getframe


class CaptureSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._compiled = False
        self._told = False
        self._capturing = 0

    def install(self) -> None:
        patches = self.recorder.patches
        patches.set(torch, "compile", self._compile(torch.compile))
        patches.set(torch.jit, "script", self._checked("torch.jit.script", torch.jit.script, aside=True))
        patches.set(torch.jit, "trace", self._checked("torch.jit.trace", torch.jit.trace))
        patches.set(torch.export, "export", self._checked("torch.export.export", torch.export.export))
        after_import("torch.onnx", self._watch_onnx)
        self._watch_dynamo()

    def close(self) -> None:
        frames = compat.dynamo_eval_frame()
        if frames is not None and hasattr(frames, "__torchsan_original__"):
            frames._maybe_set_eval_frame = frames.__torchsan_original__
            del frames.__torchsan_original__

    # -- captures that we check ---------------------------------------------------------------------

    def _watch_onnx(self) -> None:
        if self.recorder.active:
            onnx = sys.modules["torch.onnx"]
            self.recorder.patches.set(onnx, "export", self._checked("torch.onnx.export", onnx.export))

    def _checked(self, kind: str, original: Callable[..., Any], *, aside: bool = False) -> Callable[..., Any]:
        def capture(*args: Any, **kwargs: Any) -> Any:
            mine = self.recorder.judging and not self._capturing and kind_of(_getframe(1).f_code) == USER
            before = self._before(kind, args, kwargs) if mine else None
            self._capturing += 1
            try:
                if not aside:
                    result = original(*args, **kwargs)
                else:
                    with self.recorder.aside():
                        result = original(*args, **_one_frame_further(args, kwargs))
            except Exception as error:
                if mine:
                    self._check(kind, original, args, kwargs, error, before)
                raise
            finally:
                self._capturing -= 1
            if mine:
                self._check(kind, original, args, kwargs, result, before)
            return result

        capture.__name__, capture.__doc__ = original.__name__, original.__doc__
        capture.__wrapped__ = original  # type: ignore[attr-defined]
        return capture

    def _before(self, kind: str, args: Any, kwargs: Any) -> Any:
        from torchsan.verify.spot import before_capture

        with self.recorder.aside():
            return before_capture(kind, args, kwargs)

    def _check(self, kind: str, original: Any, args: Any, kwargs: Any, result: Any, before: Any) -> None:
        """Compare the capture with eager, on copies, while nothing of this is recorded."""
        with self.recorder.shielded(), self.recorder.aside():
            from torchsan.verify.spot import on_the_spot

            findings = on_the_spot(kind, original, args, kwargs, result, before=before)
            for finding in findings:
                self.recorder.keep(finding)

    # -- compilers, where we step aside -------------------------------------------------------------

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            with self.recorder.aside():
                result = original(*args, **kwargs)
            self._watch_dynamo()
            return result

        compile.__wrapped__ = original  # type: ignore[attr-defined]
        compile.__doc__ = original.__doc__
        return compile

    def _watch_dynamo(self) -> None:
        """Compiled regions begin and end with this call; between the two our patches are out."""
        frames = compat.dynamo_eval_frame()
        if frames is None or hasattr(frames, "__torchsan_original__"):
            return
        original = getattr(frames, "_maybe_set_eval_frame", None)
        if original is None:
            return
        frames.__torchsan_original__ = original

        def set_eval_frame(callback: Any) -> Any:
            compiled = callable(callback)
            if compiled and not self._compiled:
                self._compiled = True
                self._tell()
                self.recorder.step_aside()
            elif not compiled and self._compiled:
                self._compiled = False
                self.recorder.step_back()
            return original(callback)

        frames._maybe_set_eval_frame = set_eval_frame

    def _tell(self) -> None:
        if not self._told and not self._capturing:
            self._told = True
            self.recorder.report.notes.append(
                "torch.compile is in use: what happens inside compiled regions is not watched"
            )


def _one_frame_further(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`torch.jit.script` looks up a class's names in its caller's frame; ours stands between the two."""
    return kwargs if len(args) > 2 else {**kwargs, "_frames_up": kwargs.get("_frames_up", 0) + 1}

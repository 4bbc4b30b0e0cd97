"""Watches captures: steps aside for code that looks at torch's own functions, and checks what was captured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.export

from torchsan.observe.imports import when_imported
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import USER, kind_of

_getframe = sys._getframe


class CaptureSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._capturing = 0

    def install(self) -> None:
        patches = self.recorder.patches
        patches.set(torch.jit, "script", self._checked("torch.jit.script", torch.jit.script, aside=True))
        patches.set(torch.jit, "trace", self._checked("torch.jit.trace", torch.jit.trace))
        patches.set(torch.export, "export", self._checked("torch.export.export", torch.export.export))
        when_imported("torch.onnx", self._watch_onnx)

    def close(self) -> None:
        pass

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


def _one_frame_further(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`torch.jit.script` looks up a class's names in its caller's frame; ours stands between the two."""
    return kwargs if len(args) > 2 else {**kwargs, "_frames_up": kwargs.get("_frames_up", 0) + 1}

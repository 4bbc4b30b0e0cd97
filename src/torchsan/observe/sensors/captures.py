"""Watches for code that looks at torch's own functions: compilers and scripting. We step aside there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchsan import compat
from torchsan.observe.recorder import Recorder


class CaptureSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._entered: list[bool] = []
        self._told = False

    def install(self) -> None:
        patches = self.recorder.patches
        patches.set(torch, "compile", self._compile(torch.compile))
        patches.set(torch.jit, "script", self._aside(torch.jit.script))
        self._watch_dynamo()

    def close(self) -> None:
        frames = compat.dynamo_eval_frame()
        if frames is not None and hasattr(frames, "__torchsan_original__"):
            frames._maybe_set_eval_frame = frames.__torchsan_original__
            del frames.__torchsan_original__

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            with self.recorder.aside():
                result = original(*args, **kwargs)
            self._watch_dynamo()
            return result

        compile.__wrapped__ = original  # type: ignore[attr-defined]
        compile.__doc__ = original.__doc__
        return compile

    def _aside(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def script(*args: Any, **kwargs: Any) -> Any:
            with self.recorder.aside():
                return original(*args, **kwargs)

        script.__wrapped__ = original  # type: ignore[attr-defined]
        script.__doc__ = original.__doc__
        return script

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
            if compiled and not self._entered:
                self._entered.append(True)
                self._tell()
                self.recorder.step_aside()
            elif not compiled and self._entered:
                self._entered.clear()
                self.recorder.step_back()
            return original(callback)

        frames._maybe_set_eval_frame = set_eval_frame

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self.recorder.report.notes.append(
                "torch.compile is in use: what happens inside compiled regions is not watched"
            )

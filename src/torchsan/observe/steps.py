"""Steps of optimizers, for every sensor that wants to know: one pair of hooks, one list of parameters a step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from torchsan import compat_compile
from torchsan.observe.objects import parameters_of
from torchsan.observe.sites import Site, site_of


class OptimizerStep:
    """One call of `step()`, as its hooks see it. Programs with many small optimizers make thousands a second: what not
    every listener needs is found when the first one asks."""

    __slots__ = ("_parameters", "args", "frame", "inner", "known_site", "kwargs", "optimizer")

    def __init__(
        self,
        optimizer: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
        inner: bool,
        known_site: Site | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.args = args
        self.kwargs = kwargs
        self.frame = frame
        # Inside the step of another optimizer, which calls this one's.
        self.inner = inner
        self._parameters: list[torch.Tensor] | None = None
        self.known_site = known_site

    @property
    def parameters(self) -> list[torch.Tensor]:
        if self._parameters is None:
            self._parameters = parameters_of(self.optimizer)
        return self._parameters

    @property
    def site(self) -> Site:
        if self.known_site is None:
            self.known_site = site_of(self.frame)
        return self.known_site


Listener = Callable[[OptimizerStep], None]


class StepHooks:
    """Listeners are called in the order in which they came, while the recorder `watches`; `give_up` is told of an
    error of ours."""

    def __init__(self, give_up: Callable[[Exception], None], watches: Callable[[], bool] = lambda: True) -> None:
        self._give_up = give_up
        self._watches = watches
        self.before: list[Listener] = []
        self.after: list[Listener] = []
        self._handles: list[Any] = []
        # Frames of steps that have begun, by address, and their lines: to hold more than that would keep what the
        # program has let go.
        self._running: list[tuple[int, Site | None]] = []

    def install(self) -> None:
        self.resume()

    def close(self) -> None:
        self.pause()

    def resume(self) -> None:
        if not self._handles:
            self._handles = [
                torch_optimizer.register_optimizer_step_pre_hook(self._before),
                torch_optimizer.register_optimizer_step_post_hook(self._after),
            ]

    def pause(self) -> None:
        """Dynamo traces through these hooks, and its guards look at them: out while it does."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        frame = sys._getframe(1)
        if self._running:  # a step inside another, or one of those has raised
            self._running = [entry for entry in self._running if _is_above(frame, entry[0])]
        self._running.append((id(frame), None))
        step = OptimizerStep(optimizer, args, kwargs, frame, len(self._running) > 1)
        self._tell(self.before, step)
        self._running[-1] = (id(frame), step.known_site)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        frame = sys._getframe(1)
        known = [place for place, (number, _) in enumerate(self._running) if number == id(frame)]
        if not known:  # we were not there when it began
            return
        del self._running[known[0] + 1 :]
        site = self._running[-1][1]
        self._tell(self.after, OptimizerStep(optimizer, args, kwargs, frame, len(self._running) > 1, site))
        self._running.pop()

    def _tell(self, listeners: list[Listener], step: OptimizerStep) -> None:
        if not self._watches():
            return
        held = compat_compile.hold()  # a compiled step would have what we make here compiled as well
        try:
            with torch._C.DisableTorchFunction():  # gradients are asked for, of parameters of any class
                for listener in listeners:
                    listener(step)
        except Exception as error:
            self._give_up(error)
        finally:
            compat_compile.release(held)


def _is_above(frame: FrameType | None, number: int) -> bool:
    while frame is not None:
        frame = frame.f_back
        if id(frame) == number:
            return True
    return False

"""Watches weights that should be equal on all ranks: what DDP wraps, what optimizers step, and what differs then."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torchsan import compat_distributed as distributed
from torchsan.model import Place
from torchsan.model.events import Line
from torchsan.model.parallel_events import StepWithoutGradients
from torchsan.model.source import shown_path
from torchsan.observe.averaging import Averaging, digest_of, gradient_digests
from torchsan.observe.clock import clock
from torchsan.observe.names import modules
from torchsan.observe.objects import is_exact_tensor, parameters_of
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.refusals import whole_statement
from torchsan.observe.settings import Settings, changed, in_words, set_by_hand, settings_of
from torchsan.observe.sites import Site, site_of, user_frames
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import is_plain, memory_of
from torchsan.observe.wrapped import WrappedModules

_getframe = sys._getframe
EVERY = (1, 2, 3, 4)
MAX_PARAMETERS = 4_096
MAX_WRITES = 32
REDUCTION = "Expected to have finished reduction in the prior iteration"


class _Known:
    """One optimizer."""

    def __init__(self, number: int, made: Site | None) -> None:
        self.number = number
        self.made = made
        self.steps = 0
        self.names: list[str] = []
        self.since = 0
        self.gradless = 0
        self.backwards = -1
        self.last: Site | None = None
        self.tuned: Place | None = None  # where a scheduler, or the program itself, last changed its settings
        self.settings: Settings = []
        self.groups: list[int] = []  # its groups, by identity
        self.born: list[str] = []  # its settings as it was made
        self.intended = False
        self.averagings = 0  # how often something was summed between two steps that may have been the weights


class ReplicaSensor:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.wrapped = WrappedModules(recorder)
        self.averaging = Averaging(recorder)
        self._optimizers: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self.on_wrap: list[Callable[[Any, FrameType], None]] = []
        self.before_steps: list[Callable[[OptimizerStep, Site | None], None]] = []

    # -- patches ------------------------------------------------------------------------------------

    def install(self) -> None:
        patches = self.recorder.patches
        self.recorder.steps.before.append(self._before_step)
        self.recorder.steps.after.append(self._after_step)
        patches.set(torch.optim.Optimizer, "__init__", self._made(torch.optim.Optimizer.__init__))
        schedulers = torch.optim.lr_scheduler
        for kind in (schedulers.LRScheduler, schedulers.ReduceLROnPlateau):
            if "step" in vars(kind):
                patches.set(kind, "step", self._scheduling(kind.step))
        if not distributed.available():
            return
        self.recorder.when_parallel.append(self._attend)
        ddp = distributed.ddp_class()
        patches.set(ddp, "__init__", self._wrapping(ddp.__init__))
        patches.set(ddp, "forward", self._forward(ddp.forward))
        for owner, name in ((torch.nn.Module, "requires_grad_"), (torch.nn.Module, "_apply")):
            patches.set(owner, name, self._changing(name, getattr(owner, name)))
        patches.set(torch.Tensor, "requires_grad_", self._freeing(torch.Tensor.requires_grad_))
        for name in ("register_module_parameter_registration_hook", "register_module_module_registration_hook"):
            register = getattr(torch.nn.modules.module, name, None)
            if register is not None:
                self._handles.append(register(self._registered))
        for owner in (torch, torch.random):
            patches.set(owner, "manual_seed", self._seeding(owner.manual_seed))

    def _attend(self) -> None:
        self.averaging.begin()
        self.recorder.before_backward.append(self.averaging.before_backward)
        self.recorder.after_backward.append(self._after_backward)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for optimizer, known in list(self._optimizers.items()):
            if known.steps:
                self._weights(optimizer, known, "end", known.last)

    # -- wrappers -----------------------------------------------------------------------------------

    def _made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._optimizer_made(optimizer, _getframe(1))

        __init__.__doc__ = original.__doc__
        __init__.__wrapped__ = original  # type: ignore[attr-defined]
        return __init__

    def _wrapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(ddp: Any, *args: Any, **kwargs: Any) -> None:
            original(ddp, *args, **kwargs)
            self._wrapped(ddp, _getframe(1))

        __init__.__doc__ = original.__doc__
        __init__.__wrapped__ = original  # type: ignore[attr-defined]
        return __init__

    def _forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(ddp: Any, *args: Any, **kwargs: Any) -> Any:
            self._ddp_forward(ddp, _getframe(1))
            try:
                return original(ddp, *args, **kwargs)
            except RuntimeError as error:
                if REDUCTION in str(error):
                    self._explain(ddp, error, _getframe(1))
                raise

        forward.__doc__ = original.__doc__
        forward.__wrapped__ = original  # type: ignore[attr-defined]
        return forward

    def _changing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            if self.wrapped.all:
                self._changed([id(p) for p in module.parameters()], _getframe(1))
            return result

        method.__name__, method.__doc__ = name, original.__doc__
        method.__wrapped__ = original  # type: ignore[attr-defined]
        return method

    def _freeing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def requires_grad_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.wrapped.all and isinstance(tensor, torch.nn.Parameter):
                frame = _getframe(1)
                if frame.f_code.co_name != "requires_grad_":  # else the module's own, which is noted there
                    self._changed([id(tensor)], frame)
            return original(tensor, *args, **kwargs)

        requires_grad_.__doc__ = original.__doc__
        return requires_grad_

    def _scheduling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            before = settings_of(scheduler.optimizer)
            result = original(scheduler, *args, **kwargs)
            if settings_of(scheduler.optimizer) != before:
                self._tuned(scheduler.optimizer, _getframe(1))
            return result

        step.__doc__, step.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
        return step

    @shield
    def _tuned(self, optimizer: Any, frame: FrameType) -> None:
        if self._on():
            self._known(optimizer).tuned = site_of(frame).place

    def _registered(self, module: Any, name: str, value: Any) -> None:
        if self.wrapped.all and self.recorder.active:
            inner = [id(p) for p in value.parameters()] if isinstance(value, torch.nn.Module) else [id(value)]
            self._changed([*inner, name], _getframe(1))

    def _seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def manual_seed(seed: Any) -> Any:
            self._seeded(seed, _getframe(1))
            return original(seed)

        manual_seed.__doc__ = original.__doc__
        manual_seed.__wrapped__ = original  # type: ignore[attr-defined]
        return manual_seed

    # -- noting -------------------------------------------------------------------------------------

    def _on(self) -> bool:
        return self.recorder.active and not self.recorder.paused

    @shield
    def _optimizer_made(self, optimizer: Any, frame: FrameType) -> None:
        if self._on():
            while frame.f_back is not None and frame.f_code.co_name == "__init__" and _is_optim(frame):
                frame = frame.f_back
            known = self._optimizers[optimizer] = _Known(len(self._optimizers), site_of(frame))
            known.born = in_words(self._settings(optimizer, known))

    @shield
    def _wrapped(self, ddp: Any, frame: FrameType) -> None:
        if self._on():
            self.recorder.parallel()
            self.wrapped.wrapped(ddp, frame)
            for listener in self.on_wrap:
                listener(ddp, frame)

    @shield
    def _ddp_forward(self, ddp: Any, frame: FrameType) -> None:
        if self._on():
            self.wrapped.forward(ddp, frame)
            self._before_sum(ddp)

    def _before_sum(self, ddp: Any) -> None:
        """Ranks that pass over a step count steps differently; the same sum is the same moment on all of them."""
        journal, wrapped = self.recorder.journal, self.wrapped.all.get(ddp)
        if journal is None or wrapped is None or wrapped.alone or not torch.is_grad_enabled() or not _due(wrapped.sums):
            return
        for optimizer, known in list(self._optimizers.items()):
            parameters = parameters_of(optimizer)[:MAX_PARAMETERS]
            mine = all(id(p) in wrapped.managed and is_exact_tensor(p) and is_plain(p) for p in parameters)
            if known.steps and parameters and mine:
                journal.write(
                    "sums",
                    optimizer=known.number,
                    sums=wrapped.sums,
                    steps=known.steps,
                    calls=dict(self.recorder.calls),
                    digests=[digest_of(p) for p in parameters],
                )

    def _after_backward(self, backwards: int) -> None:
        if self.wrapped.all and self._on():
            self.wrapped.after_backward(backwards)

    @shield
    def _explain(self, ddp: Any, error: BaseException, frame: FrameType) -> None:
        if self._on():
            found = self.wrapped.explain_reduction(ddp, frame)
            if found:
                error.__torchsan__ = found  # type: ignore[attr-defined]

    @shield
    def _changed(self, keys: list[object], frame: FrameType) -> None:
        if self._on():
            self.wrapped.changed(keys, frame)

    @shield
    def _seeded(self, seed: Any, frame: FrameType) -> None:
        journal = self.recorder.journal
        if self._on() and journal is not None:
            site = site_of(frame)
            if site.library is None:
                journal.write("seed", value=str(seed), line=row(site.place))

    # -- steps --------------------------------------------------------------------------------------

    def _before_step(self, step: OptimizerStep) -> None:
        if step.inner:
            return
        optimizer, frame = step.optimizer, step.frame
        known = self._known(optimizer)
        for listener in self.before_steps:
            listener(step, known.made)
        # A step that is given a closure makes its gradients itself.
        if known.gradless >= 0 and not any(
            a is not optimizer and callable(a) for a in (*step.args, *step.kwargs.values())
        ):
            self._without_gradients(optimizer, known, step.parameters, frame)
        if self.wrapped.all:
            self.wrapped.look_at_gradients(step.parameters, set(self.recorder.reduced), frame)
        if known.steps == 0:
            self._weights(optimizer, known, "before", step.site)
        elif self.averaging.maybe_of_weights():
            known.averagings += 1
            if _due(known.averagings):
                self._weights(optimizer, known, "before", known.last)

    def _after_step(self, step: OptimizerStep) -> None:
        if step.inner:
            return
        known = self._known(step.optimizer)
        known.steps += 1
        known.last = step.site
        if _due(known.steps):
            self._weights(step.optimizer, known, "after", known.last)
        self.averaging.stepped()
        if self.wrapped.all:
            for wrapped in self.wrapped.all.values():
                wrapped.synced = False

    def _known(self, optimizer: Any) -> _Known:
        known = self._optimizers.get(optimizer)
        if known is None:
            known = self._optimizers[optimizer] = _Known(len(self._optimizers), None)
        return known

    def explained(self, optimizer: Any) -> None:
        """Why it trains nothing is told already."""
        self._known(optimizer).gradless = -1 << 30

    def _without_gradients(self, optimizer: Any, known: _Known, parameters: list[Any], frame: FrameType) -> None:
        """Steps that do nothing, one after the other, with backward passes in between."""
        backwards = self.recorder.ledger.backwards
        if any(p.grad is not None for p in parameters) or not parameters:
            known.gradless = -1 << 30  # it has had gradients: a step without is the program's own affair
        elif backwards > known.backwards:
            known.gradless += 1
            if known.gradless == 2:
                name = type(optimizer).__name__
                made = Line(known.made.place) if known.made is not None else None
                self.recorder.emit(StepWithoutGradients(name, Line(site_of(frame).place), made, None))
        known.backwards = backwards

    # -- what ranks are compared by -----------------------------------------------------------------

    def _weights(self, optimizer: Any, known: _Known, when: str, site: Site | None) -> None:
        journal = self.recorder.journal
        if journal is None:
            return
        rank, world = distributed.world()
        parameters = parameters_of(optimizer)[:MAX_PARAMETERS]
        if journal.rank is None and world > 1:
            journal.is_rank(rank, world)
        if (world < 2 and when != "end") or journal.rank is None or site is None:
            return
        if not all(is_exact_tensor(p) and is_plain(p) for p in parameters):
            return  # sharded: every rank has its own part
        managed = [self.wrapped.managed(p) for p in parameters]
        summed = when != "end" and self.averaging.of_gradients(parameters)
        known.intended = known.intended or summed or any(w is not None for w in managed)
        # DDP has made them equal when it was built: only what was written since can part them.
        earlier = frozenset().union(*(w.earlier for w in managed if w is not None))
        names = {}
        if not known.names:
            known.names = self._name(parameters, site, _getframe(0))
            names = {"names": known.names, "born": known.born}
        copied = when != "end" and not known.intended and self.averaging.of_copies(parameters)
        synced = all(w.synced for w in managed if w is not None) or self.averaging.of_weights(parameters)
        journal.write(
            "weights",
            optimizer=known.number,
            step=known.steps,
            when=when,
            digests=[digest_of(p) for p in parameters],
            gradients=gradient_digests(parameters) if copied else [],
            settings=in_words(self._settings(optimizer, known)),
            calls=dict(self.recorder.calls),
            line=row(whole_statement(site.place)),
            made=row(known.made.place) if known.made is not None else None,
            tuned=row(known.tuned) if known.tuned is not None else None,
            wrapped=any(w is not None for w in managed),
            intended=known.intended,
            ignored=[index for index, p in enumerate(parameters) if self.wrapped.ignores(p)],
            joined=self.wrapped.joined(),
            synced=synced or when != "after",
            averaged=self.averaging.of_weights(parameters),
            writes=self._writes(known, parameters, earlier),
            **names,
        )
        known.since = clock.now()

    def _settings(self, optimizer: Any, known: _Known) -> Settings:
        before, known.settings = known.settings, settings_of(optimizer)
        groups, known.groups = known.groups, [id(group) for group in optimizer.param_groups]
        names = changed(before, known.settings)
        # Groups that are others now were loaded, not set.
        if names and known.tuned is None and groups == known.groups:
            paths = {shown_path(code.co_filename) for code in self.recorder.codes}
            known.tuned = set_by_hand(sorted(paths), names)
        return known.settings

    def _name(self, parameters: list[Any], site: Site, frame: FrameType) -> list[str]:
        found: dict[int, str] = {}
        for path, module in modules(user_frames(frame)):
            for name, parameter in module.named_parameters():
                found.setdefault(id(parameter), f"{path}.{name}")
        return [found.get(id(p), f"parameter {index}") for index, p in enumerate(parameters)]

    def _writes(self, known: _Known, parameters: list[Any], earlier: frozenset[Any]) -> list[Any]:
        """Lines of the program that wrote parameters since the last record: index, op, line."""
        found: dict[Any, None] = {}
        for index, parameter in enumerate(parameters):
            memory = memory_of(parameter)
            logged = self.recorder.ledger.writes.get(memory, []) if memory is not None else []
            silent = [w for w, _ in self.recorder.ledger.silent.get(memory or 0, [])]
            for write in (*logged, *silent):
                if write.before >= known.since and write.kind != "collective" and (memory, write) not in earlier:
                    found[index, write.op, row(whole_statement(write.site.place))] = None
        return [list(key) for key in list(found)[:MAX_WRITES]]


def _due(count: int) -> bool:
    return count in EVERY or count & (count - 1) == 0


def _is_optim(frame: FrameType) -> bool:
    return isinstance(frame.f_locals.get("self"), torch.optim.Optimizer)


def row(place: Place) -> tuple[Any, ...]:
    return (place.path, place.line, place.column, place.end_line, place.end_column, place.function)

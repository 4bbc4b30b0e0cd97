"""Watches compiled regions: the graphs they are made of, the values they save, the inputs they write.

While torch compiles, our patches are out, so that dynamo sees torch as it is. While compiled code runs they are in,
but for those that its guards look at: nothing is compiled anew because we watch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan import compat_compile, compat_tracing
from torchsan.observe.compiled.failures import explained_later
from torchsan.observe.compiled.region import Region
from torchsan.observe.compiled.replay import replay
from torchsan.observe.compiled.saves import RegionSave, region_saves
from torchsan.observe.compiled.scopes import may_write, note_node, noted_scopes
from torchsan.observe.compiled.trials import trials_of
from torchsan.observe.imports import when_imported
from torchsan.observe.patches import Entry, Patches
from torchsan.observe.recorder import Recorder, shield
from torchsan.observe.sites import Site
from torchsan.observe.writing import worth_a_look

if TYPE_CHECKING:
    from torchsan.observe.sensors.aliases import AliasWatch
    from torchsan.observe.sensors.exposure import ExposureSensor

_NAMES = re.compile(r"\w+")


class CompiledSensor:
    def __init__(
        self,
        recorder: Recorder,
        exposure: ExposureSensor | None = None,
        aliases: AliasWatch | None = None,
    ) -> None:
        self.recorder = recorder
        self.exposure = exposure
        self.aliases: Any = aliases
        self.visits: dict[Site, int] = {}
        self.saves: dict[int | None, list[RegionSave]] = {}
        self._compiling: Region | None = None
        self._inside = False
        # Patches that the guards of compiled code look at: out while such code runs.
        self._guarded: list[Entry] = []
        self._hooks_guarded = False
        # These stay in while the others are out: they are how we know when to put them in again.
        self._hooks = Patches()
        self._listening = False

    # -- listening ----------------------------------------------------------------------------------

    def install(self) -> None:
        self.recorder.patches.set(torch, "compile", self._compile(torch.compile))
        # Dynamo notes torch's functions by their address when it is imported: it must not take ours for them.
        when_imported("torch._dynamo", self._watch_dynamo, self.recorder.aside)
        when_imported(compat_compile.AOT_MODULE, self._watch_aot)

    def close(self) -> None:
        self._leave()
        self._hooks.remove()
        if self.recorder.eager and self._listening:
            compat_compile.force_eager(False)

    def _hook(self, owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
        self._hooks.set(owner, name, wrapped(getattr(owner, name)))

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            with self.recorder.aside():
                result = original(*args, **kwargs)
            self._watch_dynamo()
            return result

        compile.__wrapped__ = original  # type: ignore[attr-defined]
        compile.__doc__ = original.__doc__
        return compile

    @shield
    def _watch_dynamo(self) -> None:
        if self._listening or not self.recorder.active or not compat_compile.is_loaded():
            return
        self._listening = True
        if self.recorder.eager:
            compat_compile.force_eager()
            return
        places = compat_compile.hooks()
        if places is None:
            self.recorder.report.notes.append(
                "torch.compile is in use: this version's compiled regions are not watched"
            )
            return
        compat_compile.never_trace("torchsan")
        self._hook(*places["enter"], self._entering)
        self._hook(*places["compiling"], self._around_compiling)
        self._hook(*places["backend"], self._around_backend)
        self._hook(*places["guards"], self._seeing_guards)
        nodes = compat_tracing.proxies()
        if nodes is not None:
            self._hook(*nodes, self._making_nodes)

    @shield
    def _watch_aot(self) -> None:
        place = compat_compile.aot_partition()
        if self.recorder.active and place is not None:
            self._hook(*place, self._around_partition)

    # -- entering and leaving compiled code ---------------------------------------------------------

    def _entering(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def set_eval_frame(callback: Any) -> Any:
            # Torch asks for this around each of its own functions that is not to be compiled: mostly nothing changes.
            inside = callback is not None and (callback is False or callable(callback))
            if inside is not self._inside:
                self._enter() if inside else self._leave()
            return original(callback)

        return set_eval_frame

    def _enter(self) -> None:
        self._inside = True
        if self._guarded and self.recorder.active:
            self.recorder.patches.take_out(self._guarded)
        if self._hooks_guarded:
            self.recorder.steps.pause()

    def _leave(self) -> None:
        self._inside = False
        if not self.recorder.active or self.recorder.asleep:
            return
        if self._guarded:
            self.recorder.patches.put_in(self._guarded)
        if self._hooks_guarded:
            self.recorder.steps.resume()

    def _seeing_guards(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(manager: Any, *args: Any, **kwargs: Any) -> None:
            original(manager, *args, **kwargs)
            output = kwargs.get("output_graph", args[1] if len(args) > 1 else None)
            self._note_guards(output)

        return __init__

    @shield
    def _note_guards(self, output: Any) -> None:
        names = {name for text in compat_compile.guard_names(output) for name in _NAMES.findall(text)}
        self._hooks_guarded |= not names.isdisjoint(compat_compile.OPTIMIZER_HOOKS)
        self._guarded = self.recorder.patches.named(names | {entry.name for entry in self._guarded})

    # -- compiling ----------------------------------------------------------------------------------

    def _making_nodes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def create_proxy(tracer: Any, kind: Any, target: Any, args: Any, kwargs: Any, *others: Any, **more: Any) -> Any:
            made = original(tracer, kind, target, args, kwargs, *others, **more)
            if kind in ("call_function", "call_method"):
                self._note_node(tracer, made, may_write(target, args, kwargs))
            return made

        return create_proxy

    @shield
    def _note_node(self, tracer: Any, made: Any, writes: bool) -> None:
        if self.recorder.active:
            note_node(tracer.output_graph, made.node, writes=writes)

    def _around_compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def install_callbacks(handler: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
            self.recorder.step_aside()
            try:
                with original(handler, *args, **kwargs):
                    yield
            finally:
                self.recorder.step_back()
                if self._inside:
                    self._enter()

        return install_callbacks

    def _around_backend(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call_user_compiler(output: Any, module: Any, inputs: Any) -> Any:
            region = self._region(output, module, inputs)
            if region is None:
                return original(output, module, inputs)
            outer, self._compiling = self._compiling, region
            try:
                with compat_compile.uncached():
                    compiled = original(output, module, inputs)
            except Exception as error:
                failing = self._failing(original, output, inputs, error)
                explained_later(self.recorder, error, region, module, list(inputs), failing)
                raise
            finally:
                self._compiling = outer
            return region.wrap(compiled, module)

        return call_user_compiler

    def _failing(
        self, original: Callable[..., Any], output: Any, inputs: Any, error: Exception
    ) -> Callable[[torch.fx.GraphModule], bool]:
        """Does the compiler fail in the same way on a part of the graph?"""

        def fails(part: torch.fx.GraphModule) -> bool:
            try:
                original(output, part, inputs)
            except Exception as again:
                return type(again) is type(error) and str(again).splitlines()[:2] == str(error).splitlines()[:2]
            return False

        return fails

    @shield
    def _region(self, output: Any, module: Any, inputs: Any) -> Region | None:
        if not self.recorder.active or compat_compile.is_export(output) or compat_compile.runs_users_code(output):
            return None
        scopes = noted_scopes(output)
        known = replay(module, list(inputs), scopes)
        name = compat_compile.function_name(output)
        trials = trials_of(self.recorder, self.watch_of_its_own, module, known, scopes, name)
        return Region(self, known, name, trials)

    def _around_partition(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def partition(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._note_partition(args, kwargs, result)
            return result

        return partition

    @shield
    def _note_partition(self, args: Any, kwargs: Any, result: Any) -> None:
        if self._compiling is None:
            return
        config = kwargs.get("aot_config", args[4] if len(args) > 4 else None)
        number = getattr(config, "aot_id", None)
        if isinstance(number, int):
            self.saves[number] = known = region_saves(result[0], result[1], result[2])
            self._compiling.overwrites_saved |= any(save.overwritten for save in known)

    # -- for regions --------------------------------------------------------------------------------

    def watch_of_its_own(self) -> AliasWatch:
        """One that knows nothing of the program's memory, nor tells others of what it learns."""
        from torchsan.observe.sensors.aliases import AliasWatch

        known, watch = self.recorder.aliases, AliasWatch(self.recorder)
        self.recorder.aliases = known
        watch.looks_for_young = False
        return watch

    def visit(self, site: Site) -> int | None:
        """How often this line was met before, if it is to be looked at now."""
        seen = self.visits.get(site, 0)
        self.visits[site] = seen + 1
        close = worth_a_look(seen) or (self.aliases is not None and self.aliases.follows(site, seen))
        return seen if close else None

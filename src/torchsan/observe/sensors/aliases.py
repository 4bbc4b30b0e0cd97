"""Watches for memory that has several holders: at writes, steps, backward passes and where NumPy is handed memory.

The model is in `observe.holders`; what counts as evidence in `observe.evidence`. A line is looked at closely at its
first visits and then at ever rarer ones, within a share of the process's time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from torchsan import compat, compat_compile
from torchsan.model.events import Event, GradientEdited, Line, Memory, Write
from torchsan.observe.compiled.frames import whole_frames
from torchsan.observe.evidence import anyone, callers, default_layers, itself, twins
from torchsan.observe.evidence.arrays import written_as_arrays
from torchsan.observe.evidence.container_copies import operand_of_old
from torchsan.observe.evidence.contexts import Contexts, context_of
from torchsan.observe.evidence.exchanges import Exchanges
from torchsan.observe.evidence.operands import Operands
from torchsan.observe.evidence.outliving import Outliving
from torchsan.observe.evidence.proofs import WriteProof
from torchsan.observe.evidence.put_back import PutBack
from torchsan.observe.evidence.repeats import Repeats
from torchsan.observe.evidence.restored import Restored
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.foreign_writes import lines_that_write
from torchsan.observe.holders.census import take_census
from torchsan.observe.holders.extents import extent_of
from torchsan.observe.holders.following import Following
from torchsan.observe.holders.schedule import Schedule
from torchsan.observe.holders.slots import Census
from torchsan.observe.holders.takings import Takings
from torchsan.observe.ledger import Stepped, Written
from torchsan.observe.names import local_names
from torchsan.observe.objects import is_a, is_tensor, tensors_of
from torchsan.observe.recorder import Recorder
from torchsan.observe.refusals import whole_statement, written_name
from torchsan.observe.sites import TORCH, USER, Site, frame_place, kind_of, site_of, user_frames
from torchsan.observe.steps import OptimizerStep
from torchsan.observe.tensors import is_plain, memory_of
from torchsan.observe.writing import worth_a_look

# How many hold a gradient when no other path of backward needs it: in a hook the engine and the hook, in the backward
# of a custom function that one alone.
ALONE_IN_HOOK, ALONE_IN_BACKWARD = 2, 1
LATE = 12
_MAKING = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@dataclass(slots=True)
class Token:
    """What is to be done after the write."""

    writing: Writing
    # What is told if values have changed, and what is told whether they have or not.
    events: list[Event]
    always: list[Event]
    proof: Callable[[], None] | None


class AliasWatch:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # How many references to the written tensor the sensor that asks us has itself.
        self.sensor_holds = 0
        # Whether containers that no name holds yet are looked for.
        self.looks_for_young = True
        self.schedule = Schedule()
        self.takings = Takings()
        self.proof = WriteProof(recorder)
        self.exchanges = Exchanges(recorder)
        self.contexts = Contexts(recorder)
        self.outliving = Outliving(recorder)
        self.put_back = PutBack(recorder, self.takings)
        self.restored = Restored(recorder, self.takings, self._last_write)
        self.repeats = Repeats(recorder, self.takings, self._last_write)
        self.operands = Operands(recorder, self.repeats.is_told)
        # Lines at which another sensor has told of an alias already.
        self.told: set[tuple[CodeType, int]] = set()
        self.following = Following()
        # The memories that were written last, at lines that were looked at.
        self._late: dict[int, compat.WeakStorage] = {}
        self._exposed: tuple[Site, str] | None = None
        self._census: Census | None = None
        recorder.aliases = self

    # -- writes -------------------------------------------------------------------------------------

    def follows(self, site: Site, seen: int) -> bool:
        """Is the next visit of this line to be looked at, too?"""
        return self.following.follows(site, seen)

    def before(
        self,
        op: str,
        site: Site,
        tensor: Any,
        memory: int,
        args: tuple[Any, ...],
        frame: FrameType,
        seen: int,
        kwargs: dict[str, Any] | None = None,
        original: Callable[..., Any] | None = None,
    ) -> Token | None:
        if not is_plain(tensor) or tensor.numel() == 0:
            return None
        frames = whole_frames(user_frames(frame))
        if not frames:
            return None
        if self.recorder.backward is not None:
            self._gradient_edited(op, site, tensor, memory, frame)
            self.contexts.written(op, site, tensor, memory, args, frames)
            return None
        if _keeps_its_own(tensor, frame):
            return None
        # In the dispatcher only what is written may be handed over, and that may be several.
        known = args if original is not None else (tensor,)
        writing = Writing(op, site, tensor, known, kwargs or {}, original, frame, frames, seen)
        return self._before(writing, memory, None)

    def before_region(self, writings: list[tuple[Writing, int]]) -> list[Token | None]:
        """Writes of one compiled region, which is about to run: who holds what is looked up once for all of them."""
        if self.recorder.backward is not None:
            return [None] * len(writings)
        shared: list[Census] = []
        around = [value for writing, _ in writings for value in (writing.tensor, *writing.args)]

        def census(writing: Writing) -> Census:
            if not shared:
                shared.append(self._take(writing, around))
            return shared[0]

        return [self._before(writing, memory, census) for writing, memory in writings]

    def _before(self, writing: Writing, memory: int, census: Callable[[Writing], Census] | None) -> Token | None:
        site = writing.site
        due = worth_a_look(writing.seen)
        if not due and self.following.follows(site):
            if not self.outliving.stored.met(site, writing.extent):
                return self._note(writing)
            due = True  # the same bytes again: this is what the line is followed for
            self.following.came_again(site)
        if not self.schedule.allows(site, due=due):
            return None
        with self._looking():
            return self._look(writing, memory, census or self._take) if writing.extent is not None else None

    def _note(self, writing: Writing) -> Token | None:
        """Of other bytes than before a line that is followed is only noted what it makes of them."""
        if not self.schedule.notes() or writing.extent is None:
            return None
        with self._looking():
            _ = writing.before
            return Token(writing, [], [], None)

    def _take(self, writing: Writing, around: Iterable[Any] = ()) -> Census:
        young = writing.tensor if self._being_collected(writing) else None
        # Older objects are many: once for a generator, when it has handed out something twice.
        grown = writing.seen == 2 and any(f.f_code.co_flags & _MAKING for f in writing.frames)
        # What was written of late is looked for as well: its result may have been stored since.
        late = [storage for known in self._late.values() if (storage := known.get()) is not None]
        return take_census(
            writing.frame, young=young, grown=grown, around=(writing.tensor, *writing.args, *around, *late)
        )

    def _look(self, writing: Writing, memory: int, take: Callable[[Writing], Census]) -> Token:
        proof = self.proof.before(writing)
        self.exchanges.before(writing)
        census = writing.census = take(writing)
        self._note_late(memory, writing.tensor)
        self.takings.note(census)
        self.repeats.manners[memory] = writing.manner
        self.repeats.look(census, writing.frames, writing)
        self.operands.mark(census, {memory: writing.event})
        self.operands.mark_by_container(writing)
        if self.outliving.stored.follows(writing):
            self.following.begin(writing.site)
        _ = writing.before  # looked at now, compared after the write
        events = [
            *self._first(callers.events_of(writing)),
            *self._first(self.outliving.events_of(writing)),
        ]
        events += self._first(self.exchanges.windows(writing))
        if not events:
            events += self._first(anyone.events_of(writing))
        always = self._first(self.outliving.edits_of(writing))
        always += self._first(operand_of_old(writing, self.takings))
        if (writing.site.code, writing.site.lasti) not in self.told:
            always += self._first(itself.events_of(writing, self.takings, self._last_write))
        writing.census = Census()  # nothing that it found may live longer
        return Token(writing, events, always, proof)

    def look_at_histories(self, writing: Writing, memory: int) -> None:
        """Look only for containers whose entries have become one tensor."""
        if self.schedule.allows(writing.site):
            with self._looking():
                census = self._take(writing)
                self.takings.note(census)
                self.repeats.manners[memory] = writing.manner
                self.repeats.look(census, writing.frames, writing)

    def _note_late(self, memory: int, tensor: torch.Tensor) -> None:
        self._late.pop(memory, None)
        if len(self._late) >= LATE:
            del self._late[next(iter(self._late))]
        self._late[memory] = compat.WeakStorage(tensor)

    def _first(self, events: Iterator[Event]) -> list[Event]:
        """The first event that is sure, else the first that is possible."""
        found = list(events)
        sure = [event for event in found if getattr(event, "certainty", "proved") == "proved"]
        return (sure or found)[:1]

    def _being_collected(self, writing: Writing) -> bool:
        """May a container that no name holds yet be taking what this function hands out?"""
        if not self.looks_for_young:
            return False
        return writing.seen >= 1 and (_is_making(writing) or (writing.seen < 4 and self.schedule.spare()))

    def after(self, token: Token) -> None:
        with self._looking():
            if token.proof is not None:
                token.proof()
            told = [*token.always, *(token.events if token.events and token.writing.changed() else ())]
            for event in told:
                self.recorder.emit(event)
            self.outliving.after(token.writing)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Our own work: on its share of the time, with no graph, and seen by no mode or compiler of the program's."""
        held = compat_compile.hold()
        try:
            with self.schedule.looking(), compat.unseen(), torch.no_grad():
                yield
        finally:
            compat_compile.release(held)

    # -- other moments ------------------------------------------------------------------------------

    def look_around(self, frame: FrameType | None) -> Census:
        """Note who holds what, and tell of histories whose entries have become one."""
        frames = user_frames(frame)
        census = take_census(frame)
        self.takings.note(census)
        self.repeats.look(census, frames)
        return census

    def before_step(self, step: OptimizerStep) -> None:
        self._census = None
        if self.schedule.due(("step", step.site)):
            with self._looking():
                self._census = self.look_around(step.frame)

    def after_step(self, step: OptimizerStep, stepped: Stepped) -> None:
        census, self._census = self._census, None
        if census is None:
            return
        with self._looking():
            frames = user_frames(step.frame)
            write = Write(stepped.name, "optimizer", Line(stepped.site.place))
            self.operands.mark(census, dict.fromkeys(stepped.memories, write))
            silent = self.recorder.ledger.silent
            for event in twins.events_of(step.parameters, census, stepped.memories, write, frames, silent):
                self.recorder.emit(event)
            for event in default_layers.events_of(census, stepped.memories, write):
                self.recorder.emit(event)
            for event in anyone.stepped(census, stepped.memories, write, frames, self.takings):
                self.recorder.emit(event)
            for event in anyone.shared_buffers(census, write, frames):
                self.recorder.emit(event)

    def before_backward(self, frame: FrameType, site: Site) -> None:
        """Gradients that are kept as references are about to be added to."""
        if self.schedule.due(("backward", site)):
            with self._looking():
                census = self.look_around(frame)
                frames = user_frames(frame)
                if frames:
                    write = Write("backward", "unknown", Line(frame_place(frames[0])))
                    held = (memory_of(h.value) for h in census.holdings if h.step.kind == "grad")
                    self.operands.mark(census, {memory: write for memory in held if memory is not None})
                    for event in anyone.added_to(census, write, frames):
                        self.recorder.emit(event)

    def handed_out(self, tensor: Any, site: Site, how: str, frame: FrameType) -> None:
        """Memory was handed to or taken from NumPy: its writes are not seen, its values are."""
        self._exposed = (site, how)
        due, again = self.schedule.due(("handed", site)), False
        if due or self.schedule.notes():
            with self._looking():
                again = self.outliving.came_again(tensor, site)
        if due or (again and self.schedule.allows(("handed", site))):
            with self._looking():
                census, frames = self.look_around(frame), user_frames(frame)
                told = self.outliving.handed_out(tensor, site, how, census, frames) if again else iter(())
                for event in self._first(told):
                    self.recorder.emit(event)

    def data_set(self, tensor: torch.Tensor, value: Any, memory: int, frame: FrameType, before: int | None) -> None:
        """`p.data = value`; `before`: the memory that the parameter had."""
        if memory != before:
            self.restored.given(tensor, memory)
        if self.schedule.due(("set", site_of(frame))):
            with self._looking():
                if memory == before:
                    self.restored.given_again(tensor, value, frame)
                else:
                    self.put_back.given(tensor, value, memory, before, frame)

    def finish(self) -> None:
        """The program has ended: look at what its modules still hold."""
        if self.schedule.at_the_end():
            with self._looking():
                self.look_around(None)
        if self.schedule.remark:
            self.recorder.report.notes.append(self.schedule.remark)
        self.takings.clear()

    # -- helpers ------------------------------------------------------------------------------------

    def _last_write(self, value: Any, census: Census) -> Write | None:
        """The last known write of a memory: an op, a step, or a statement of NumPy's."""
        extent = extent_of(value)
        shared = (h.value for h in census.holdings if h.extent == extent and is_tensor(h.value))
        memory = next((m for v in shared if (m := memory_of(v)) in self.recorder.ledger.writes), memory_of(value))
        if memory is None:
            stepped = {m for step in self.recorder.ledger.steps for m in step.memories}
            tensors = [h.value for h in census.holdings if h.extent == extent and is_tensor(h.value)]
            memory = next((m for v in tensors if (m := memory_of(v)) in stepped), None)
        ledger = self.recorder.ledger
        writes = ledger.writes.get(memory or 0)
        found: Written | None = writes[-1] if writes else None
        step = next((s for s in reversed(ledger.steps) if memory in s.memories), None)
        if step is not None and (found is None or step.before >= found.before):
            return Write(step.name, "optimizer", Line(step.site.place))
        if found is not None:
            return Write(found.op, "op", Line(whole_statement(found.site.place), found.site.library_place))
        if self._exposed is not None:
            lines = lines_that_write(self._exposed[0].place, self._exposed[1]) or written_as_arrays(value, census)
            return Write("numpy", "foreign", Line(lines[0])) if lines else None
        return None

    def _gradient_edited(self, op: str, site: Site, tensor: Any, memory: int, frame: FrameType) -> None:
        """A hook, or the backward of a custom function, writes the gradient that it was given, itself or by helpers."""
        hook = _called_by_the_engine(frame)
        if hook is None or tensor.requires_grad or not _is_argument(memory, hook):
            return
        alone = ALONE_IN_BACKWARD if context_of(hook) is not None else ALONE_IN_HOOK
        # A backward for given inputs (`autograd.grad`) holds on to their gradients: what it hands back.
        if tensor._use_count() <= alone + self.recorder.backward_keeps_gradients + self.sensor_holds:
            return
        backward = self.recorder.backward
        write = Write(op, "op", Line(whole_statement(site.place), site.library_place))
        needed = Line(backward.place) if backward is not None else None
        self.recorder.emit(GradientEdited(Memory(written_name(site.place)), write, needed))


def _is_making(writing: Writing) -> bool:
    """Does a generator or a comprehension hand out one value after the other?"""
    return any(f.f_code.co_flags & _MAKING or f.f_code.co_name == "<listcomp>" for f in writing.frames)


def _called_by_the_engine(frame: FrameType) -> FrameType | None:
    """The outermost of the user's functions that backward runs: what a helper was given may be its caller's own."""
    found, at = None, frame
    while at is not None and at.f_code.co_name != "_engine_run_backward":
        found = at if kind_of(at.f_code) == USER else found
        at = at.f_back  # type: ignore[assignment]
    return found


def _is_argument(memory: int, frame: FrameType) -> bool:
    code, values = frame.f_code, local_names(frame)
    held = (values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    return any(memory_of(value) == memory for value in held if is_tensor(value))


def _keeps_its_own(tensor: torch.Tensor, frame: FrameType) -> bool:
    """Does torch write buffers that it looks after: batch norm when it counts its batches, DDP when it sends them?"""
    if kind_of(frame.f_code) != TORCH:
        return False
    module = local_names(frame).get("self")
    if not is_a(module, torch.nn.Module):
        return False
    return any(owned is tensor for _, owned, kind in tensors_of(module) if kind == "buffer")

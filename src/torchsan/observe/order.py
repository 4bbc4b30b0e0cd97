"""Writes down which collectives a rank makes, in which order, so that ranks can be compared afterwards."""

from __future__ import annotations

from types import FrameType
from typing import Any

from torchsan import compat_distributed as distributed
from torchsan.model import Place
from torchsan.observe.flights import Flight, tensors_in
from torchsan.observe.recorder import Recorder
from torchsan.observe.sites import Site
from torchsan.observe.subjects import subjects
from torchsan.processes.ring import Ring

# So many calls of a line have the names of their tensors looked up: the order of names is compared between ranks.
NAMED = 48
# Point-to-point calls are between two ranks, not between all of a group.
PAIRWISE = ("send", "recv")


class CallOrder:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._ring: Ring | None = None
        self._pid: Any = None
        self._groups: dict[str, int] = {}
        self._named: dict[Site, int] = {}
        self._lines: dict[Site, int] = {}

    def begun(self, flight: Flight, group: Any, args: tuple[Any, ...], frame: FrameType | None) -> None:
        if flight.op in PAIRWISE:
            return
        what = _call(flight.op, args)
        names = self._names(flight, args, frame) if frame is not None else ()
        self._write(flight, group, what, names)

    def pseudo(self, flight: Flight, group: Any) -> None:
        """A collective that C++ makes on behalf of a Python call."""
        self._write(flight, group, (flight.op,), ())

    def landed(self, flight: Flight) -> None:
        if self._ring is not None and flight.row >= 0:
            self._ring.done(flight.row)

    def _write(self, flight: Flight, group: Any, what: tuple[Any, ...], names: tuple[str, ...]) -> None:
        journal = self.recorder.journal
        if journal is None or group.size() < 2:
            return
        if self._ring is None or self._pid is not journal:
            # Also after a fork: the ring of the parent is not this process's to write.
            self._ring, self._pid = Ring(journal), journal
            self._groups, self._lines = {}, {}
        ring, name = self._ring, flight.group
        if name not in self._groups:
            self._groups[name] = ring.word(name)
            journal.write("group", name=name, ranks=distributed.members(group))
            rank, world = distributed.world()
            journal.is_rank(rank, world)
        calls = self.recorder.calls
        number = calls[name] = calls.get(name, 0) + 1
        line = self._lines.get(flight.site)
        if line is None:
            line = self._lines[flight.site] = ring.word(_place(flight.site.place))
        flight.row = ring.called(self._groups[name], number, ring.word(what), line, ring.word(names) if names else 0)

    def _names(self, flight: Flight, args: tuple[Any, ...], frame: FrameType) -> tuple[str, ...]:
        seen = self._named.get(flight.site, 0)
        if seen >= NAMED or self.recorder.journal is None or not flight.outputs:
            return ()
        self._named[flight.site] = seen + 1
        return tuple(sorted(set(subjects(flight.outputs[0].memory, frame))))[:8]


def _place(place: Place) -> tuple[Any, ...]:
    return (place.path, place.line, place.column, place.end_line, place.end_column, place.function)


def _call(op: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What must be equal on all ranks: the op, its kind of reduction and root, and the size and type that it moves."""
    options = next((a for a in args if type(a).__name__.endswith("Options")), None)
    reduction = str(getattr(options, "reduceOp", "")).rpartition(".")[2]
    if not reduction.isalpha():
        reduction = _reduction(options)
    root = getattr(options, "rootRank", -1)
    tensors = list(tensors_in(args[1] if op in ("all_gather", "gather", "all_gather_into_tensor") and len(args) > 1
                              else args[0] if args else None))  # fmt: skip
    if op in ("all_to_all", "all_to_all_single", "barrier") or not tensors:
        return (op,)
    kind = str(tensors[0].dtype).removeprefix("torch.")
    layout = "" if all(t.is_contiguous() for t in tensors) else str([tuple(t.stride()) for t in tensors])
    return (op, reduction, root, sum(t.numel() for t in tensors), kind, str([tuple(t.shape) for t in tensors]), layout)


def _reduction(options: Any) -> str:
    operation = getattr(options, "reduceOp", None)
    found = getattr(operation, "op", operation)
    return str(getattr(found, "name", ""))

"""Runs the graph of a region in eager, on copies, to see what its lines do to memory that the region itself makes.

Nobody outside ever sees that memory, and compiled code need not even make it. But a line that changes a value under two
names does so in compiled code as well: whether it does is looked at here, with the evidence that lines in eager get. It
is done at the first calls only, for graphs of torch's own functions on the processor, and for no more memory than
`AT_MOST`; the random stream is put back, and what the region was given is not touched.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchsan.observe.compiled.frames import traced_frame, whole_frames
from torchsan.observe.compiled.lines import write_site
from torchsan.observe.compiled.private import on_our_own
from torchsan.observe.compiled.purity import CUSTOM, only_computes, part_of
from torchsan.observe.compiled.records import Inner, Replay
from torchsan.observe.compiled.scopes import NOTHING, Items, Scopes
from torchsan.observe.compiled.spoilt import Spoilt
from torchsan.observe.compiled.writing import region_writing
from torchsan.observe.holders.manner import manner_of
from torchsan.observe.sites import Site, user_frames
from torchsan.observe.tensors import changed_since, is_plain, looked_at, memory_of
from torchsan.observe.writing import worth_a_look

if TYPE_CHECKING:
    from torchsan.observe.sensors.aliases import AliasWatch

TIMES = 2
AT_MOST = 64 << 20
MAX_NODES = 2_000


class Rehearsal:
    """Those of one region."""

    def __init__(self, module: torch.fx.GraphModule, known: Replay, scopes: dict[torch.fx.Node, Scopes]) -> None:
        self.module = module
        self.known = known
        # Of values that the region makes: lines that change them unseen when they have been saved.
        self.spoilt = {spoilt.site.place: spoilt for spoilt in known.spoilt if spoilt.target is None}
        self.scopes = scopes
        self.written = {write.target for write in known.writes}
        self.left = TIMES
        # Evidence of its own: what is rehearsed is no memory of the program's.
        self.watch: AliasWatch | None = None
        self.visits: dict[Site, int] = {}

    def run(self, args: tuple[Any, ...], frame: FrameType, watch: Callable[[], AliasWatch]) -> None:
        self.left -= 1
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if not all(is_plain(t) and t.device.type == "cpu" for t in tensors):
            self.left = 0
            return
        self.watch = self.watch or watch()
        with on_our_own():
            _Player(self, frame).run(*copies(args, self.written))


class _Player(torch.fx.Interpreter):  # type: ignore[misc]
    def __init__(self, rehearsal: Rehearsal, frame: FrameType, outer: _Player | None = None, graph: Any = None) -> None:
        super().__init__(graph if graph is not None else rehearsal.module, garbage_collect_values=False)
        self.rehearsal = rehearsal
        self.frame = frame
        # What all nodes have given, those of parts of the graph as well.
        self.given: dict[torch.fx.Node, Any] = outer.given if outer is not None else {}
        # Lists of the program's by their identity while it was traced: one is one all along.
        self.lists: dict[int, list[Any]] = outer.lists if outer is not None else {}

    def run_node(self, node: torch.fx.Node) -> Any:
        inner = self.rehearsal.known.inner.get(node)
        token = self._before(node, inner) if inner is not None else None
        spoilt = self._spoilt(node) if inner is not None else None
        written = self.env.get(inner.written) if inner is not None else None
        contents = looked_at(written) if spoilt is not None and isinstance(written, torch.Tensor) else None
        result = self.given[node] = super().run_node(node)
        if spoilt is not None and contents is not None and changed_since(written, contents) is not None:
            self.rehearsal.known.seen_spoilt.append(spoilt)
        if token is not None and self.rehearsal.watch is not None:
            self.rehearsal.watch.after(token)
        return result

    def _spoilt(self, node: torch.fx.Node) -> Spoilt | None:
        """What this node changes unseen, where that is still to be proved."""
        site = write_site(node) if self.rehearsal.spoilt else None
        found = self.rehearsal.spoilt.get(site.place) if site is not None else None
        return found if found not in self.rehearsal.known.seen_spoilt else None

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Parts of the graph are played as well: checkpointed ones, and what a custom function does."""
        name = part_of(target)
        if name is None:
            return super().call_function(target, args, kwargs)
        part = _Player(self.rehearsal, self.frame, self, args[0])
        if name == CUSTOM:  # its forward graph, its backward graph, and what it is applied to
            return part.run(*args[2:])[0]
        return part.run(*args[1:])

    def _before(self, node: torch.fx.Node, inner: Inner) -> Any:
        site, watch = write_site(node), self.rehearsal.watch
        if site is None or watch is None:
            return None
        seen = self.rehearsal.visits.get(site, 0)
        self.rehearsal.visits[site] = seen + 1
        tensor = self.env.get(inner.written)
        memory = memory_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if not worth_a_look(seen) or memory is None or not is_plain(tensor) or not tensor.numel():
            return None
        scopes = tuple(scope.told(self._value) for scope in self.rehearsal.scopes[node])
        at = traced_frame(site, self.frame, tensor, scopes)
        frames = whole_frames(user_frames(at))
        if not frames:
            return None
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        manner = manner_of(inner.op, tensor, args)
        writing = region_writing(inner.op, site, tensor, args[1:], manner, at, frames, seen, ())
        if writing.extent is not None and writing.extent.folded() and tensor is args[0]:
            # Compiled code orders reads before writes, so only memory that is several elements is worth a proof.
            writing.original = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
            writing.kwargs = kwargs
        if not inner.own:
            watch.look_at_histories(writing, memory)
            return None
        return watch.before_region([(writing, memory)])[0]

    def _value(self, known: Any) -> Any:
        if isinstance(known, torch.fx.Node):
            return self.given.get(known, NOTHING)
        if isinstance(known, Items):
            entries = [value for item in known.items if (value := self._value(item)) is not NOTHING]
            made = self.lists.setdefault(known.identity, [])
            made[:] = entries
            return made
        found = known() if isinstance(known, weakref.ref) else None
        return NOTHING if found is None else found


def rehearsal_of(module: torch.fx.GraphModule, known: Replay, scopes: dict[torch.fx.Node, Scopes]) -> Rehearsal | None:
    """None where there is nothing to see, or where the graph does more than to compute."""
    return Rehearsal(module, known, scopes) if known.inner and can_be_tried(module, known) else None


def can_be_tried(module: torch.fx.GraphModule, known: Replay) -> bool:
    """Can the graph be run once more, on copies of what it is given, and nobody would know?"""
    if not known.complete or known.size > AT_MOST or not known.on_processor:
        return False
    if any(write.target < 0 for write in known.writes) or len(module.graph.nodes) > MAX_NODES:
        return False
    return only_computes(module.graph)


def copies(args: tuple[Any, ...], written: set[int]) -> list[Any]:
    """What is written is handed over as a copy, and with it all that lies in the same memory."""
    memories = {memory_of(args[target]) for target in written}
    storages: dict[int | None, torch.UntypedStorage] = {}
    found: list[Any] = []
    for value in args:
        if isinstance(value, torch.Tensor):
            value = value.detach()
            memory = memory_of(value)
            if memory in memories:
                if memory not in storages:
                    storages[memory] = torch._C.TensorBase.untyped_storage(value).clone()
                form = value.storage_offset(), value.size(), value.stride()
                value = torch.empty(0, dtype=value.dtype).set_(storages[memory], *form)
        found.append(value)
    return found

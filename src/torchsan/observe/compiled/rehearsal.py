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

from torchsan import compat, compat_compile
from torchsan.observe.compiled.frames import traced_frame
from torchsan.observe.compiled.records import Replay
from torchsan.observe.compiled.replay import state_kept, write_site
from torchsan.observe.compiled.scopes import NOTHING, Items, Scopes
from torchsan.observe.compiled.writing import region_writing
from torchsan.observe.holders.manner import manner_of
from torchsan.observe.sites import Site, user_frames
from torchsan.observe.tensors import is_plain, memory_of
from torchsan.observe.writing import worth_a_look

if TYPE_CHECKING:
    from torchsan.observe.sensors.aliases import AliasWatch

TIMES = 2
AT_MOST = 64 << 20
MAX_NODES = 2_000
# Where functions live that do nothing but compute.
_MODULES = {
    *("_operator", "math", "torch", "torch.nn.functional", "torch.functional", "torch._C._nn", "torch._C"),
    *("torch._tensor", "torch._VF"),
}
_BUILTINS = {"getattr", "max", "min", "abs", "round", "pow", "sum"}
_SWITCHES = ("_enter_autocast", "_exit_autocast")


class Rehearsal:
    """Those of one region."""

    def __init__(self, module: torch.fx.GraphModule, known: Replay, scopes: dict[torch.fx.Node, Scopes]) -> None:
        self.module = module
        self.inner = known.inner
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
        random, held = torch.get_rng_state(), compat_compile.hold()
        try:
            with compat.unseen(), state_kept(), torch.no_grad():
                _Player(self, frame).run(*_copies(args, self.written))
        finally:
            compat_compile.release(held)
            torch.set_rng_state(random)


class _Player(torch.fx.Interpreter):  # type: ignore[misc]
    def __init__(self, rehearsal: Rehearsal, frame: FrameType) -> None:
        super().__init__(rehearsal.module, garbage_collect_values=False)
        self.rehearsal = rehearsal
        self.frame = frame
        # Lists of the program's by their identity while it was traced: one is one all along.
        self.lists: dict[int, list[Any]] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        token = self._before(node) if node in self.rehearsal.inner else None
        result = super().run_node(node)
        if token is not None and self.rehearsal.watch is not None:
            self.rehearsal.watch.after(token)
        return result

    def _before(self, node: torch.fx.Node) -> Any:
        site, watch = write_site(node), self.rehearsal.watch
        if site is None or watch is None:
            return None
        seen = self.rehearsal.visits.get(site, 0)
        self.rehearsal.visits[site] = seen + 1
        inner = self.rehearsal.inner[node]
        tensor = self.env.get(inner.written)
        memory = memory_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if not worth_a_look(seen) or memory is None or not is_plain(tensor) or not tensor.numel():
            return None
        scopes = tuple(scope.told(self._value) for scope in self.rehearsal.scopes[node])
        at = traced_frame(site, self.frame, tensor, scopes)
        frames = user_frames(at)
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
            return self.env.get(known, NOTHING)
        if isinstance(known, Items):
            entries = [value for item in known.items if (value := self._value(item)) is not NOTHING]
            made = self.lists.setdefault(known.identity, [])
            made[:] = entries
            return made
        found = known() if isinstance(known, weakref.ref) else None
        return NOTHING if found is None else found


def rehearsal_of(module: torch.fx.GraphModule, known: Replay, scopes: dict[torch.fx.Node, Scopes]) -> Rehearsal | None:
    """None where there is nothing to see, or where the graph does more than to compute."""
    if not known.inner or not known.complete or known.size > AT_MOST or not known.on_processor:
        return None
    if any(write.target < 0 for write in known.writes) or len(module.graph.nodes) > MAX_NODES:
        return None
    return Rehearsal(module, known, scopes) if all(map(_only_computes, module.graph.nodes)) else None


def _only_computes(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return bool(node.op != "call_module")
    target: Any = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).startswith(("aten.", "prims."))
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    owner, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    if owner == "builtins":
        return name in _BUILTINS
    if owner is None or owner in _MODULES or name in _SWITCHES:
        return True
    return str(owner).startswith(("torch.special", "torch.linalg", "torch.fft"))


def _copies(args: tuple[Any, ...], written: set[int]) -> list[Any]:
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

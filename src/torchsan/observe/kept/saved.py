"""The memory that a graph keeps, each storage once, without unpacking anything.

What a node saved is read off its raw slots, so that nothing is checked, recomputed or copied back. Where saved-tensor
hooks were at work the slot has whatever they packed: the memory reachable from that is what is kept, as the inputs of
a checkpointed block are.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from torchsan import compat
from torchsan.observe import nodes
from torchsan.observe.sites import Site
from torchsan.observe.tensors import memory_of

# How far to look into what a saved-tensor hook packed, and into the function that unpacks it.
DEPTH, OBJECTS = 10, 400
# Nodes of leaves are numbered beyond all others, and belong to every graph.
LEAVES = 1 << 60
_CLOSED = (
    str,
    bytes,
    int,
    float,
    type(None),
    ModuleType,
    type,
    FrameType,
    torch.nn.Module,
    torch.optim.Optimizer,
    weakref.ref,
    torch.Generator,
)


@dataclass(slots=True)
class Kept:
    """One storage that a graph keeps, under the first node that was found to keep it."""

    memory: int
    storage_bytes: int
    # Bytes of the saved tensor itself, which may be a small view of the storage.
    tensor_bytes: int
    site: Site | None
    op: str
    what: str
    module: str
    packed: bool
    leaf: bool


@dataclass(slots=True)
class Contents:
    """What a graph is made of: the memory it keeps, the number of its nodes, and the numbers torch gave to them."""

    kept: list[Kept]
    nodes: int
    sequences: set[int]

    @property
    def bytes(self) -> int:
        return sum(one.storage_bytes for one in self.kept)


def kept_by(roots: list[Any]) -> Contents:
    found: dict[int, Kept] = {}
    closures: set[int] = set()
    count, sequences = 0, set()
    for node in nodes.walk(roots):
        count += 1
        number = compat.node_sequence(node)
        if 0 <= number < LEAVES:
            sequences.add(number)
        for what, tensor, packed in _values(node, closures):
            memory = memory_of(tensor)
            if memory is None:
                continue
            own = tensor.numel() * tensor.element_size()
            known = found.get(memory)
            if known is None:
                found[memory] = _kept(node, what, tensor, memory, own, packed)
            else:
                known.tensor_bytes = max(known.tensor_bytes, own)
                known.leaf = known.leaf or _is_leaf(tensor)
    return Contents(list(found.values()), count, sequences)


def sequences_of(roots: list[Any]) -> set[int]:
    """The numbers of the nodes alone."""
    numbers = (compat.node_sequence(node) for node in nodes.walk(roots))
    return {number for number in numbers if 0 <= number < LEAVES}


def _kept(node: Any, what: str, tensor: torch.Tensor, memory: int, own: int, packed: bool) -> Kept:
    site = nodes.site_of_node(node)
    module = getattr(site, "module", "") or ""
    storage = torch._C.TensorBase.untyped_storage(tensor)
    return Kept(memory, storage.nbytes(), own, site, nodes.op_name(node), what, module, packed, _is_leaf(tensor))


def _is_leaf(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and compat.is_leaf(tensor)


def _values(node: Any, closures: set[int]) -> Iterator[tuple[str, torch.Tensor, bool]]:
    for what, slot in _slots(node):
        packed = compat.unpack_hook(slot)
        if packed is None:
            tensor = compat.packed_value(slot)
            if isinstance(tensor, torch.Tensor):
                yield what, tensor, False
            continue
        for start in (compat.packed_value(slot), packed):
            # Hundreds of slots share one unpacking function.
            if isinstance(start, FunctionType):
                if id(start) in closures:
                    continue
                closures.add(id(start))
            for tensor in reachable(start, closures):
                yield what, tensor, True


def _slots(node: Any) -> Iterator[tuple[str, Any]]:
    names = ["_raw_saved_tensors"] if nodes.is_custom(node) else nodes.raw_attributes(node)
    for name in names:
        try:
            held = getattr(node, name)
        except (RuntimeError, AttributeError):
            continue  # released by an earlier backward
        what = name.removeprefix("_raw_saved_")
        for slot in held if isinstance(held, (list, tuple)) else (held,):
            yield what, slot
    yield from _on_context(node)


def _on_context(node: Any) -> Iterator[tuple[str, Any]]:
    """`ctx.x = tensor` in a custom function is kept as well, and checked by nobody."""
    if not nodes.is_custom(node):
        return
    attributes = getattr(node, "__dict__", None)
    if type(attributes) is dict:
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor):
                yield name, compat.AsSlot(value)


def reachable(start: Any, met: set[int]) -> Iterator[torch.Tensor]:
    """Tensors that an object leads to: through containers, closures and plain objects."""
    todo, seen = [(start, 0)], 0
    while todo and seen < OBJECTS:
        value, depth = todo.pop()
        seen += 1
        if isinstance(value, torch.Tensor):
            yield value
            continue
        if depth >= DEPTH or isinstance(value, _CLOSED):
            continue
        if depth and id(value) in met:
            continue
        met.add(id(value))
        todo += [(one, depth + 1) for one in _inside(value)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, torch._C._autograd.SavedTensor):
        return [compat.packed_value(value)]  # so a checkpointed block keeps its inputs
    if isinstance(value, torch._C._FunctionBase):
        return [compat.packed_value(slot) for _, slot in _slots(value)]
    if isinstance(value, FunctionType):
        return list(value.__closure__ or ())
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, (CellType, list, tuple, dict, set, frozenset)):
        return gc.get_referents(value)
    attributes = gc.get_referents(value)
    return [one for one in attributes if not isinstance(one, type)]

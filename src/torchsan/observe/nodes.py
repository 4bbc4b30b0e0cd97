"""Reading the autograd graph: what each node saved, from which line, and whether it still stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from torchsan import compat, compat_compile
from torchsan.model.events import Line, Save
from torchsan.observe.clock import clock
from torchsan.observe.objects import is_tensor
from torchsan.observe.sites import Site

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
STALE = "modified by an inplace operation"
RELEASED = "backward through the graph a second time"
# Leaves have a number above all others; it says nothing.
LAST = 1 << 62
_attributes: dict[type, list[str]] = {}
_slots: dict[type, list[str]] = {}


@dataclass(slots=True)
class Saved:
    """One saved value of one node."""

    node: Any
    what: str
    tensor: torch.Tensor | None
    stale: bool
    expected: int | None = None
    current: int | None = None
    message: str = ""


def walk(roots: list[Any]) -> Iterator[Any]:
    """Every node that a backward from these roots can reach."""
    seen: set[Any] = set()
    todo = [root for root in roots if root is not None]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        todo.extend(parent for parent, _ in node.next_functions if parent is not None and parent not in seen)


def roots_of(outputs: Any) -> list[Any]:
    """The nodes from which a backward starts, for tensors and gradient edges."""
    found = [output.grad_fn if is_tensor(output) else getattr(output, "node", None) for output in outputs]
    return [root for root in found if root is not None]


def op_name(node: Any) -> str:
    """`ExpBackward0` is `exp`; a custom Function keeps its own name."""
    return _op_name(node.name(), is_custom(node))


@cache
def _op_name(full: str, custom: bool) -> str:
    name = re.sub(r"Backward\d*$", "", full.rpartition("::")[2])
    if name == "CheckpointFunction":
        return "checkpoint"
    if custom:
        return name
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return snake or name


def is_custom(node: Any) -> bool:
    return hasattr(type(node), "_forward_cls") or hasattr(node, "_forward_cls")


def site_of_node(node: Any) -> Site | None:
    return getattr(node.metadata.get("traceback_"), "site", None)


def line_of_node(node: Any) -> Line | None:
    site = site_of_node(node)
    return Line(site.place, site.library_place) if site is not None else None


def describe_save(saved: Saved) -> Save:
    region = getattr(site_of_node(saved.node), "region", None)
    if region is not None:
        return region.describe_save(saved)  # type: ignore[no-any-return]
    if compat_compile.aot_id(saved.node) is not None:
        # A region that was compiled while nobody looked: its lines are not known.
        return Save("", "", None, saved.expected)
    return Save(
        op=op_name(saved.node),
        what=saved.what,
        line=line_of_node(saved.node),
        version=saved.expected,
        custom=is_custom(saved.node) and op_name(saved.node) != "checkpoint",
        in_backward=site_of_node(saved.node) is None,
    )


def _tensor_attributes(node: Any) -> list[str]:
    """Names of the node's saved tensors: those that also have a raw form."""
    kind = type(node)
    known = _attributes.get(kind)
    if known is None:
        names = dir(kind)
        known = [n for n in names if n.startswith("_saved_") and f"_raw{n}" in names]
        _attributes[kind] = known
    return known


def raw_attributes(node: Any) -> list[str]:
    """Names of the slots in which the node's saved tensors lie, packed or not."""
    kind = type(node)
    known = _slots.get(kind)
    if known is None:
        known = _slots[kind] = [f"_raw{name}" for name in _tensor_attributes(node)]
    return known


def is_hooked(node: Any) -> bool:
    """Values in the hands of saved-tensor hooks: to read one may run a whole forward again."""
    site = site_of_node(node)
    return site is not None and site.hooked


def saved_values(node: Any) -> Iterator[Saved]:
    """What the node saved; stale values without their tensor."""
    if is_hooked(node):
        return
    if is_custom(node):
        yield from _custom_values(node)
        return
    for attribute in _tensor_attributes(node):
        what = attribute.removeprefix("_saved_")
        try:
            value = getattr(node, attribute)
        except RuntimeError as error:
            if STALE in str(error):
                yield _stale(node, what, str(error))
            continue
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield Saved(node, what, tensor, stale=False)


def _custom_values(node: Any) -> Iterator[Saved]:
    try:
        values = node.saved_tensors
    except RuntimeError as error:
        if STALE in str(error):
            yield from _stale_among(node, str(error))
        return
    except AttributeError:
        return
    for index, tensor in enumerate(values):
        if isinstance(tensor, torch.Tensor):
            yield Saved(node, str(index), tensor, stale=False)


def _stale_among(node: Any, text: str) -> Iterator[Saved]:
    """Which of a custom node's values torch complains of: it only tells the first, by shape and versions."""
    told = _stale(node, "", text)
    for index, raw in enumerate(getattr(node, "_raw_saved_tensors", ())):
        message = ""
        try:
            compat.unpack(raw)
        except RuntimeError as error:
            message = str(error)
        if STALE in message:
            yield _stale(node, str(index), message)
        elif message and _is_told(compat.packed(raw), told):
            # An output of the node itself: torch unpacks it only for the node, and says why it would not.
            yield Saved(node, str(index), None, True, told.expected, told.current, text)


def _is_told(tensor: Any, told: Saved) -> bool:
    if not isinstance(tensor, torch.Tensor) or tensor._version != told.current:
        return False
    return f"{list(tensor.shape)}" in told.message


def versions_in(text: str) -> tuple[int | None, int | None]:
    """Of torch's words about an overwritten value: the version that was saved, and the one that was found."""
    match = _VERSIONS.search(text)
    return (int(match.group(2)), int(match.group(1))) if match else (None, None)


def _stale(node: Any, what: str, message: str) -> Saved:
    expected, current = versions_in(message)
    return Saved(node, what, None, True, expected, current, message)


def tensor_behind(saved: Saved) -> torch.Tensor | None:
    """The tensor of a stale value. Torch hands it over only to a hook; the hook keeps refusing afterwards.

    The node keeps its hooks, through torch, where no collector looks: they must hold neither the node nor the tensor.
    """
    taken: list[torch.Tensor] = []
    message = saved.message

    def pack(tensor: torch.Tensor) -> None:
        taken.append(tensor)

    def unpack(_: None) -> torch.Tensor:
        raise RuntimeError(message)

    if is_custom(saved.node):
        raw = saved.node._raw_saved_tensors[int(saved.what)] if saved.what.isdigit() else None
        known = compat.packed(raw)
        if isinstance(known, torch.Tensor):
            return known
        raws: Any = (raw,)
    else:
        raws = getattr(saved.node, f"_raw_saved_{saved.what}", ())
    for raw in raws if isinstance(raws, (list, tuple)) else (raws,):
        if not hasattr(raw, "register_hooks"):
            continue
        try:
            raw.register_hooks(pack, unpack)
        except RuntimeError:
            continue
    found = next((t for t in taken if t._version == saved.current), taken[0] if taken else None)
    taken.clear()
    return found


def is_released(node: Any) -> bool:
    """An earlier backward has freed this node's values."""
    if is_hooked(node):
        return False
    for attribute in _tensor_attributes(node):
        try:
            getattr(node, attribute)
        except RuntimeError as error:
            return RELEASED in str(error)
    return False


def sequence(node: Any) -> int:
    """When the node was made, comparable with the numbers of `clock.now()`."""
    number = compat.node_sequence(node)
    if clock.threaded and 0 <= number < LAST:
        return clock.of_node(number, node.metadata.get("traceback_"))
    return number


def never_read(saved: Saved) -> bool:
    """Batch norm saves its running statistics in training, too, and does not look at them then."""
    return saved.what.startswith("running_") and bool(getattr(saved.node, "_saved_training", False))

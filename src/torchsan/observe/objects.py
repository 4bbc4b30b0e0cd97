"""Looking at the program's objects without calling them.

An object of the user's may answer `getattr`, `isinstance`, `len`, `==` or `bool` with anything: a proxy imports a
package, a lazy module runs its initialisation, a configuration raises KeyError. What is asked here goes to the
interpreter's own slots and never to code of the object's class or metaclass.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeGuard, TypeVar

import torch

T = TypeVar("T")
Kind = Literal["parameter", "buffer"]

_type_members = type.__dict__["__dict__"].__get__
_type_mro = type.__dict__["__mro__"].__get__
_DICT_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
# Names that a subclass of Tensor may define without changing what a tensor answers about itself.
_HARMLESS = {
    *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__", "__init__"),
    *("__new__", "__repr__", "__str__", "__reduce__", "__reduce_ex__", "__deepcopy__", "__init_subclass__"),
    *("__parameters__", "__orig_bases__", "__static_attributes__", "__firstlineno__", "__match_args__"),
}
# The dictionaries of a module whose entries its user knows as attributes.
MODULE_PARTS = ("_parameters", "_buffers", "_modules")
MAX_KINDS = 10_000
_tensor_kinds: dict[int, tuple[type, bool]] = {}


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """`isinstance` by the true type alone: a `__class__` that says otherwise is not asked."""
    return issubclass(type(value), kind)


def is_exactly(value: object, kinds: tuple[type, ...]) -> bool:
    """`type(value) in kinds` without `==`, which a metaclass may have made its own."""
    kind = type(value)
    for each in kinds:  # noqa: SIM110 (asked of every object of the program: a generator would cost more)
        if kind is each:
            return True
    return False


def is_exact_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """A Tensor or a Parameter of torch's own class, which answers for itself alone."""
    kind = type(value)
    return kind is torch.Tensor or kind is torch.nn.Parameter


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    return issubclass(type(value), torch.Tensor)


def is_honest(kind: type) -> bool:
    """Does a class of tensors leave torch's own answers (`shape`, `numel`, …) alone?"""
    known = _tensor_kinds.get(id(kind))
    if known is None:
        if len(_tensor_kinds) > MAX_KINDS:
            _tensor_kinds.clear()
        # The class is kept, so that its address stays its own.
        known = _tensor_kinds[id(kind)] = (kind, _leaves_alone(kind))
    return known[1]


def _leaves_alone(kind: type) -> bool:
    plain = dir(torch.Tensor)
    for cls in _type_mro(kind):
        members = class_members(cls)
        if cls is torch.Tensor:
            return True
        module = members.get("__module__")
        if type(module) is str and module.partition(".")[0] == "torch":
            continue
        if any(name in plain and name not in _HARMLESS for name, _ in members_of(cls)) or "__getattr__" in members:
            return False
    return False


def class_members(cls: type) -> Mapping[str, Any]:
    """`vars(cls)`, whatever the metaclass does."""
    members: Mapping[str, Any] = _type_members(cls)
    return members


def members_of(cls: type) -> list[tuple[str, Any]]:
    """The members of a class under plain names, of which a class may have others as well."""
    return [(name, value) for name, value in list(class_members(cls).items()) if type(name) is str]


def class_attribute(cls: type, name: str) -> Any:
    """What a class holds under a name, unbound; None when it holds nothing."""
    for base in _type_mro(cls):
        members = class_members(base)
        if name in members:
            return members[name]
    return None


def module_of(value: object) -> str:
    """The module of a value's class; empty when the class says something odd."""
    name = class_members(type(value)).get("__module__")
    return name if type(name) is str else "builtins"


# By the address of the class, which may refuse to be hashed; the class is kept, so that its address stays its own.
_dict_slots: dict[int, tuple[type, Any]] = {}
_MAX_KINDS = 10_000


def _dict_slot(kind: type) -> Any:
    """What leads to the attributes of an instance, if it has any of its own."""
    known = _dict_slots.get(id(kind))
    if known is None:
        if len(_dict_slots) > _MAX_KINDS:
            _dict_slots.clear()
        found = (class_members(cls).get("__dict__") for cls in _type_mro(kind))
        known = _dict_slots[id(kind)] = (kind, next((slot for slot in found if is_exactly(slot, _DICT_SLOTS)), None))
    return known[1]


def attributes_of(value: object, limit: int = 1 << 30) -> dict[str, Any]:
    """A copy of an object's own attributes; empty where it has none that can be read without asking it."""
    slot = _dict_slot(type(value))
    if slot is None:
        return {}
    try:
        held = slot.__get__(value)
    except (AttributeError, TypeError):
        return {}
    if type(held) is not dict or len(held) > limit:
        return {}
    return {name: item for name, item in list(held.items()) if type(name) is str}


def attribute_of(value: object, name: str) -> Any:
    """One of an object's own attributes, None where it has none of that name: nothing is copied, and nobody asked."""
    slot = _dict_slot(type(value))
    try:
        held = slot.__get__(value) if slot is not None else None
    except (AttributeError, TypeError):
        return None
    return dict.get(held, name) if type(held) is dict else None


def items_of(value: object, limit: int = 1 << 30) -> list[tuple[str, Any]]:
    """What a list, tuple or dictionary holds, with the subscript of each (`[0]`, `['w']`); empty for anything else."""
    if is_a(value, list):
        return [] if list.__len__(value) > limit else [(f"[{i}]", v) for i, v in enumerate(list.__iter__(value))]
    if is_a(value, tuple):
        return [] if tuple.__len__(value) > limit else [(f"[{i}]", v) for i, v in enumerate(tuple.__iter__(value))]
    if is_a(value, dict) and dict.__len__(value) <= limit:
        return [(f"[{k!r}]", v) for k, v in list(dict.items(value)) if is_exactly(k, (str, int))]
    return []


def sequence_of(value: object) -> list[Any]:
    """What a list or a tuple holds, whatever its class says; empty for anything else."""
    if is_a(value, list):
        return list(list.__iter__(value))
    return list(tuple.__iter__(value)) if is_a(value, tuple) else []


def told_of(error: BaseException) -> Any:
    """What we found out about an exception; None when nothing yet."""
    return attributes_of(error).get("__torchsan__")


def text_of(error: BaseException) -> str:
    """What an error of torch's says; an exception of the user's own class is not asked."""
    kind = type(error)
    torchs = str(type.__getattribute__(kind, "__dict__").get("__module__")).startswith("torch.")
    return str(error) if torchs or is_exactly(error, (RuntimeError, TypeError, NotImplementedError)) else ""


_PARAMETERS = {id(torch.nn.Parameter)}


def parameters_of(optimizer: object) -> list[torch.Tensor]:
    """All parameters of all groups. Asked at every step: most have one group of nothing but parameters."""
    found: list[torch.Tensor] = []
    for held in _parameter_lists(optimizer):
        if {*map(id, map(type, held))} == _PARAMETERS:
            found += held
        else:
            found += [p for p in held if issubclass(type(p), torch.Tensor)]
    return found


def parameters_in_turn(optimizer: object) -> Iterator[torch.Tensor]:
    """The same one by one, for who needs only the first few."""
    return (p for held in _parameter_lists(optimizer) for p in held if issubclass(type(p), torch.Tensor))


def _parameter_lists(optimizer: object) -> Iterator[list[Any]]:
    for group in sequence_of(attribute_of(optimizer, "param_groups")):
        if is_a(group, dict):
            yield sequence_of(dict.get(group, "params"))


def tensors_of(module: torch.nn.Module, _seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor, Kind]]:
    """Parameters and buffers of a module and of those in it: name, tensor, `parameter` or `buffer`. Each once."""
    seen = set() if _seen is None else _seen
    if id(module) in seen:
        return
    seen.add(id(module))
    held = attributes_of(module)
    kinds: tuple[tuple[str, Kind], ...] = (("_parameters", "parameter"), ("_buffers", "buffer"))
    for key, kind in kinds:
        for name, tensor in entries_of(held.get(key)):
            if is_tensor(tensor) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor, kind
    for name, child in entries_of(held.get("_modules")):
        if is_a(child, torch.nn.Module):
            for inner, tensor, kind in tensors_of(child, seen):
                yield f"{name}.{inner}", tensor, kind


def entries_of(held: object) -> list[tuple[str, Any]]:
    """The entries of a dictionary under names; empty for anything else."""
    if not is_a(held, dict):
        return []
    return [(name, value) for name, value in list(dict.items(held)) if type(name) is str]

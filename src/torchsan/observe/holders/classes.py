"""What a class is to the walk for holders: memory, something to open in one way or another, or nothing of interest."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from dis import get_instructions
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch

from torchsan.observe.holders.extents import holds_arrays
from torchsan.observe.objects import attributes_of, class_members
from torchsan.observe.sites import USER, kind_of_path

MAX_KINDS = 10_000
_OPENED = ("torch.nn", "torch.optim", "torch.utils.data", "torchvision.transforms", "queue")
Cached = type(functools.lru_cache(maxsize=1)(lambda: None))
bases_of = type.__dict__["__mro__"].__get__
_CODE = (FunctionType, MethodType, functools.partial, Cached, GeneratorType, BaseException)

# What a class is to the walk: nothing of interest, memory, or something to open in one way or another.
PASSED, MEMORY, SEQUENCE, DICT, SET, RUN, MODULE, OBJECT, CLASS = range(9)
BINDS = "STORE_ATTR"
_PLAIN = {
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    CodeType,
    ModuleType,
}
# By the address of the class, which may refuse to be hashed; the class is kept, so that its address stays its own.
_ways: dict[int, tuple[type, int]] = {id(kind): (kind, PASSED) for kind in _PLAIN}
PLAIN_IDS = frozenset(map(id, _PLAIN))


def way_of(kind: type) -> int:
    """How the walk treats values of this class, by the class alone: no value is asked."""
    known = _ways.get(id(kind))
    if known is None:
        if len(_ways) > MAX_KINDS:
            _ways.clear()
        known = _ways[id(kind)] = (kind, _decide(kind))
    return known[1]


def _decide(kind: type) -> int:
    if issubclass(kind, torch.Tensor) or holds_arrays(kind):
        return MEMORY
    for base, way in ((dict, DICT), ((list, tuple, deque), SEQUENCE), ((set, frozenset), SET), (_CODE, RUN)):
        if issubclass(kind, base):
            return way
    if issubclass(kind, torch.nn.Module):
        return MODULE
    if issubclass(kind, type):
        return CLASS
    return OBJECT if _is_opened(kind) else PASSED


def is_opened(kind: type) -> bool:
    """Do we look into instances of this class? Into those of the user's classes, and torch's modules and data sets."""
    return way_of(kind) in (MODULE, OBJECT)


def _is_opened(kind: type) -> bool:
    if issubclass(kind, SimpleNamespace):
        return True  # made to hold what the user puts there
    home = class_members(kind).get("__module__")
    if type(home) is not str or home == "builtins":
        return False
    return of_the_user(kind) or home.startswith(_OPENED)


def of_the_user(kind: type) -> bool:
    home = class_members(kind).get("__module__")
    if type(home) is not str or home == "builtins":
        return False
    path = attributes_of(sys.modules.get(home)).get("__file__")
    return home == "__main__" or home not in sys.modules or (type(path) is str and kind_of_path(path) == USER)


_kept: dict[int, tuple[type, frozenset[str]]] = {}


def kept_by_torch(kind: type) -> frozenset[str]:
    """The attributes that torch's own layers and wrappers among the bases of a module's class bind for themselves."""
    known = _kept.get(id(kind))
    if known is None:
        if len(_kept) > MAX_KINDS:
            _kept.clear()
        torchs = [base for base in bases_of(kind) if base is not torch.nn.Module and _is_torchs(base)]
        methods = [item for base in torchs for item in class_members(base).values() if type(item) is FunctionType]
        bound = frozenset(
            each.argval for method in methods for each in get_instructions(method) if each.opname == BINDS
        )
        known = _kept[id(kind)] = (kind, bound)
    return known[1]


def _is_torchs(kind: type) -> bool:
    home = class_members(kind).get("__module__")
    return type(home) is str and home.startswith("torch.")


# Functions that hold nothing, which is what nearly all do, by address while they live.
_barren: dict[int, weakref.ref[FunctionType]] = {}


def is_barren(function: object) -> bool:
    known = _barren.get(id(function))
    return known is not None and known() is function


def note_if_barren(function: FunctionType) -> None:
    if function.__closure__ or "__wrapped__" in attributes_of(function):
        return
    if all(id(type(item)) in PLAIN_IDS for _, item in defaults_of(function)):
        if len(_barren) > MAX_KINDS:
            _barren.clear()
        _barren[id(function)] = weakref.ref(function)


_offset = type.__dict__["__weakrefoffset__"].__get__


def allows_references(kind: type) -> bool:
    """Whether instances can be referred to weakly."""
    return bool(_offset(kind))


def defaults_of(function: FunctionType) -> list[tuple[str, Any]]:
    """Arguments that have a default, with it."""
    code = function.__code__
    positional = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
    return [*zip(names, positional, strict=True), *(function.__kwdefaults__ or {}).items()]

"""What writes: which names, which arguments of an op, and whose code does it on an optimizer's behalf."""

from __future__ import annotations

import dis
import os
from types import CodeType
from typing import Any

import torch

from torchsan import compat
from torchsan.observe.objects import items_of
from torchsan.observe.sites import TORCH, kind_of

# Methods that end in an underscore and yet write no element of the tensor.
NOT_WRITES = {"requires_grad_", "detach_", "share_memory_", "retain_grad_", "rename_", "refine_names_"}
OPERATORS = (
    *("__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"),
    *("__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__setitem__"),
)
# Properties whose assignment writes elements.
SETTERS = ("real", "imag")
_OPTIM = os.path.join(os.path.dirname(torch.__file__), "optim") + os.sep
_ENGINE = os.path.join(os.path.dirname(torch.__file__), "autograd", "graph.py")
_DONE_BY_STEP: dict[int, bool] = {}
_AUGMENTED = {
    "+=": "__iadd__",
    "-=": "__isub__",
    "*=": "__imul__",
    "/=": "__itruediv__",
    "//=": "__ifloordiv__",
    "%=": "__imod__",
    "**=": "__ipow__",
    "&=": "__iand__",
    "|=": "__ior__",
    "^=": "__ixor__",
    "<<=": "__ilshift__",
    ">>=": "__irshift__",
    "@=": "__imatmul__",
}


def inside_step(code: CodeType) -> bool:
    """Code of torch's own optimizers: one `step()` is one event, told by the optimizer sensor."""
    known = _DONE_BY_STEP.get(id(code))
    if known is None:
        path = code.co_filename
        known = kind_of(code) == TORCH and path.startswith(_OPTIM) and not path.endswith("swa_utils.py")
        _DONE_BY_STEP[id(code)] = known
    return known


def runs_backward(code: CodeType) -> bool:
    """The call into autograd's engine: what is written below it is written by torch itself."""
    return code.co_filename == _ENGINE


def worth_a_look(visits: int) -> bool:
    """The first few visits of a line, then ever fewer."""
    return visits < 4 or not visits & (visits - 1)


def written_as(code: CodeType, lasti: int) -> str | None:
    """`__iadd__` for an instruction that is `+=`, `__setitem__`, or `.imag =`; None for a call."""
    instruction = dis.opname[code.co_code[lasti]]
    if instruction in ("STORE_SUBSCR", "STORE_SLICE"):  # from Python 3.12 on `x[a:b] =` has one of its own
        return "__setitem__"
    if instruction == "STORE_ATTR":
        found = next((i for i in dis.get_instructions(code) if i.offset == lasti), None)
        return f".{found.argval} =" if found is not None else None
    if instruction == "BINARY_OP":
        found = next((i for i in dis.get_instructions(code) if i.offset == lasti), None)
        return _AUGMENTED.get(found.argrepr) if found is not None else None
    return None


def several(value: Any) -> tuple[Any, ...]:
    """One tensor, or those in a list of them."""
    return tuple(item for _, item in items_of(value)) or (value,)


def written_arguments(schema: Any) -> list[tuple[int, str]]:
    """Place and name of each argument that an op of this schema writes; place -1 for one that has a name only."""
    found = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append((-1 if argument.kwarg_only else place, argument.name))
    return found


def methods_that_write() -> list[str]:
    named = [n for n in dir(compat.TensorBase) if n.endswith("_") and not n.startswith("_") and n not in NOT_WRITES]
    return [*named, *OPERATORS]


def functions_that_write() -> list[tuple[Any, list[str]]]:
    """Where torch keeps functions that write their first argument."""
    functional = torch.nn.functional
    torch_names = [n for n in dir(torch._C._VariableFunctions) if n.endswith("_") and not n.startswith("__")]
    public = [n for n in torch_names if hasattr(torch, n) and n not in NOT_WRITES]
    return [
        (torch, public),
        (torch._VF, [n for n in public if not n.startswith("_")]),
        (torch._C._nn, [n for n in dir(torch._C._nn) if n.endswith("_") and not n.startswith("_")]),
        (functional, [n for n in dir(functional) if n.endswith("_") and not n.startswith("_")]),
    ]

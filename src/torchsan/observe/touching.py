"""Sees every call of torch that touches memory of a collective under way, and follows what a gather cut off.

Watching every call is dear, so the mode is only there while a collective of the program's own is in flight, or for the
first gathers of a line. It is put in place only below all modes of the program's own, whose order it must not disturb.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchsan import compat
from torchsan.observe.flights import tensors_in
from torchsan.observe.tensors import byte_range, memory_of

# Calls that make Python values of contents.
READ_OUTS = {
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__", "is_nonzero", "equal"),
    *("allclose", "__contains__", "__repr__", "__format__", "__array__"),
}
# Calls whose result is new memory and yet tells nothing of the contents.
FORM_ONLY = ("_like", "new_")
# So many calls are looked at for one flight that nobody waits for; then it is left alone.
PATIENCE = 20_000

Touched = Callable[[torch.Tensor, bool, Any, str, Any], None]
Result = Callable[[list[torch.Tensor], Any, Any], None]


class TouchMode(TorchFunctionMode):  # type: ignore[misc]
    """Calls back for each tensor that a torch function reads or writes, and with its result."""

    def __init__(self, touched: Touched, done: Result) -> None:
        super().__init__()
        self._touched = touched
        self._done = done
        self._busy = False
        self.wanted = False
        self.left = PATIENCE

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._busy or not self.wanted:
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        name = getattr(func, "__name__", "")
        written = self._guarded(self._writes, name, args, kwargs, frame) or []
        result = func(*args, **kwargs)
        self._guarded(self._reads, name, args, kwargs, result, written, frame)
        return result

    def _guarded(self, look: Callable[..., Any], *args: Any) -> Any:
        self._busy = True
        try:
            with compat.unseen():
                return look(*args)
        finally:
            self._busy = False

    def _writes(self, name: str, args: Any, kwargs: Any, frame: Any) -> list[torch.Tensor]:
        self.left -= 1
        written = list(tensors_in(kwargs.get("out")))
        if args and (name == "__setitem__" or _in_place(name)):
            written.extend(tensors_in(args[0]))
        for tensor in written:
            self._touched(tensor, True, frame, name, args)
        return written

    def _reads(self, name: str, args: Any, kwargs: Any, result: Any, written: list[Any], frame: Any) -> None:
        if name in ("__get__", "__set__") or name.endswith(FORM_ONLY[0]) or name.startswith(FORM_ONLY[1]):
            return
        given = [t for t in _all_tensors(args, kwargs) if not any(t is w for w in written)]
        results = list(tensors_in(result))
        if not results and not written and name not in READ_OUTS:
            return
        memories = {memory_of(t) for t in results}
        for tensor in given:
            if written or memory_of(tensor) not in memories:  # else a view of it, which reads nothing
                self._touched(tensor, False, frame, name, args)
        self._done(given, result, frame)

    # -- being there --------------------------------------------------------------------------------

    def begin(self) -> None:
        self.wanted, self.left = True, PATIENCE
        if compat.function_modes() == 0:
            compat.push_function_mode(self)

    def settle(self) -> None:
        """After a backward: its engine has put the modes back as they were, whatever hooks have begun or ended."""
        if not self.wanted:
            self.end()
        elif compat.function_modes() == 0:
            compat.push_function_mode(self)

    def end(self) -> None:
        """Go away, if nobody has put a mode on top of this one; else wait, without doing anything."""
        self.wanted = False
        compat.pop_function_mode(self)


def _in_place(name: str) -> bool:
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__index__", "__int__", "__invert__", "__iter__")
    return name.endswith("_") and name not in ("requires_grad_", "detach_", "retain_grad_", "share_memory_")


def _all_tensors(args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    yield from tensors_in(list(args))
    for name, value in kwargs.items():
        if name != "out":
            yield from tensors_in(value)


def where(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """Memory and bytes of a tensor; None where it has none."""
    memory = memory_of(tensor)
    return None if memory is None else (memory, *byte_range(tensor))

"""Other ways to run a program, for comparison: refused writes made all the same, steps that set fixed values."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from torchsan.fix.forwards import Forwards, Meaning, Place, leaf_of, moves
from torchsan.observe.patches import Patches

REFUSED = (
    "a leaf Variable that requires grad",
    "a view of a leaf Variable that requires grad",
    "is a view and is being modified inplace",
    "A view was created in no_grad mode and is being modified inplace",
    "is a view and its base or another view of its base has been modified inplace",
)
SAVED_INFERENCE = "Inference tensors cannot be saved for backward"
OVERLAPPING = "more than one element of the written-to tensor refers to a single memory location"
SPREAD = 0.3


class Literal(TorchFunctionMode):  # type: ignore[misc]
    """A write that torch refuses is made as it stands, unseen by autograd: the values are what the line says."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.forwards = Forwards()
        self._patches = Patches()

    def start(self) -> None:
        self.forwards.start()
        original = torch.nn.Module.__setattr__

        def assign(module: torch.nn.Module, name: str, value: Any) -> None:
            try:
                original(module, name, value)
            except TypeError:
                known = module._parameters.get(name)
                if known is None or not isinstance(value, torch.Tensor):
                    raise
                self.made += 1
                self.assigned(known, value)

        self._patches.set(torch.nn.Module, "__setattr__", assign)
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)
        self._patches.remove()
        self.forwards.stop()

    @property
    def meanings(self) -> dict[Place, Meaning]:
        """Lines whose refused write is made for every pass anew."""
        return self.forwards.found()

    def assigned(self, leaf: torch.Tensor, value: torch.Tensor) -> None:
        self.forwards.written(leaf, (), moves=False)
        leaf.data = value.detach().clone()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._call(func, args, kwargs or {})
        self.forwards.called(args, result)
        return result

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if writes(func, args) and args[0].is_inference() and not torch.is_inference_mode_enabled():
            # Torch makes such a write before it refuses it: it must be known beforehand.
            self.made += 1
            with torch.inference_mode():
                return func(*args, **kwargs)
        if writes(func, args) and torch.is_grad_enabled() and _is_folded(args[0]):
            return self._unseen(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if SAVED_INFERENCE in str(error):
                self.made += 1
                args, kwargs = _pytree.tree_map(_known_to_autograd, (args, kwargs))
                return func(*args, **kwargs)
            if not any(words in str(error) for words in REFUSED):
                raise
            return self._unseen(func, args, kwargs)

    def _unseen(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.made += 1
        for written in _pytree.tree_leaves(args[:1]):
            leaf = leaf_of(written)
            if leaf is not None:
                again = written is args[0] and moves(func, written, args[1:], kwargs)
                self.forwards.written(leaf, (args[1:], kwargs), moves=again)
        plain = _pytree.tree_map(lambda v: v.data if isinstance(v, torch.Tensor) else v, args[:1])
        with torch.no_grad():
            try:
                result = func(*plain, *args[1:], **kwargs)
            except RuntimeError as error:
                if OVERLAPPING not in str(error):
                    raise
                # Each element is to be written by itself: that takes memory for each of them.
                args[0].data = args[0].data.clone(memory_format=torch.contiguous_format)
                result = func(args[0].data, *args[1:], **kwargs)
        # `x += 1` binds what comes back.
        return args[0] if isinstance(result, torch.Tensor) and args else result


class Apart(Literal):
    """Refused writes are made, but to memory that the leaf has to itself: who else held it keeps its value."""

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[int, weakref.ref[torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        if getattr(func, "__name__", "") == "requires_grad_":
            self._give_memory(result)
        return result

    def _unseen(self, func: Any, args: Any, kwargs: Any) -> Any:
        written = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if written is not None and written._base is not None:
            self._give_memory(written._base, written)
        else:
            self._give_memory(written)
        return super()._unseen(func, args, kwargs)

    def _give_memory(self, leaf: Any, view: torch.Tensor | None = None) -> None:
        """Once for each leaf: what is taken from it later is meant to be its memory."""
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_leaf and leaf.requires_grad):
            return
        known = self._own.get(id(leaf))
        if known is not None and known() is leaf:
            return
        start = leaf.storage_offset()
        memory = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
        leaf.data = memory.copy_(leaf.data)
        self._own[id(leaf)] = weakref.ref(leaf)
        if view is not None:
            view.data = memory.as_strided(view.shape, view.stride(), view.storage_offset() - start)


def _known_to_autograd(value: Any) -> Any:
    """The same values in a tensor that autograd can save."""
    return value.clone() if isinstance(value, torch.Tensor) and value.is_inference() else value


def writes(func: Any, args: Any) -> bool:
    name = getattr(func, "__name__", "")
    writes = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or name == "__setitem__"
    return writes and bool(args) and isinstance(args[0], torch.Tensor)


def _is_folded(tensor: torch.Tensor) -> bool:
    """Elements that share memory: torch lets them be written by index, and backward then cannot pass the write."""
    if tensor.layout != torch.strided or not tensor.requires_grad:
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


class Scramble:
    """Every optimizer step leaves parameters at values that depend on nothing but the count of steps."""

    def __init__(self) -> None:
        self._steps = 0
        self._hook: Any = None

    def start(self) -> None:
        self._hook = register_optimizer_step_post_hook(self._step)

    def stop(self) -> None:
        self._hook.remove()

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._steps += 1
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            draw = torch.Generator().manual_seed(1000 * self._steps + number)
            values = torch.randn(parameter.shape, generator=draw) * SPREAD
            parameter.data = values.to(parameter.device, parameter.dtype)


class Frozen:
    """Optimizer steps leave parameters where they are: it does not matter then when a step is taken."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._values: list[torch.Tensor] = []

    def start(self) -> None:
        before, after = register_optimizer_step_pre_hook, register_optimizer_step_post_hook
        self._hooks = [before(self._before), after(self._after)]

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._values = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        for parameter, value in zip(parameters, self._values, strict=False):
            parameter.data.copy_(value)


class Uncached:
    """Autocast casts every weight anew."""

    def start(self) -> None:
        self._before = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)

    def stop(self) -> None:
        torch.set_autocast_cache_enabled(self._before)

"""Takes down every backward pass and optimizer step of a run."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
import torch.autograd
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchsan.fix.trial import Digest, Leaf, Pass, Step
from torchsan.observe import nodes
from torchsan.observe.patches import Patches
from torchsan.observe.program import StopProgram

ENTRIES = 512


def digest(tensor: torch.Tensor) -> Digest:
    with torch.no_grad():
        plain = tensor.detach()
        dtype = str(plain.dtype).removeprefix("torch.")
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        flat = plain.reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        flat = flat.to("cpu", torch.float64)
        chosen = flat[:: math.ceil(flat.numel() / ENTRIES)] if flat.numel() > ENTRIES else flat
        return Digest(tuple(plain.shape), dtype, float(flat.norm()), float(flat.sum()), tuple(chosen.tolist()))


class Tape:
    """On while the program runs; ends it after so many backward passes."""

    def __init__(self, limit: int | None, *, weigh: bool) -> None:
        self.limit = limit
        # Reading what a healed graph keeps would unpack it, and so take part in what is measured.
        self.weigh = weigh
        self.kept: list[int] = []
        self.passes: list[Pass] = []
        self.steps: list[Step] = []
        self.stopped = False
        self._patches = Patches()
        self._run: Any = None
        self._hook: Any = None

    def start(self) -> None:
        self._run = torch.autograd._engine_run_backward
        self._patches.set(torch.autograd, "_engine_run_backward", self._backward)
        self._hook = register_optimizer_step_pre_hook(self._step)

    def stop(self) -> None:
        self._patches.remove()
        self._hook.remove()

    def _backward(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if _is_tensor(t)]
        leaves, kept = _reach(tensors, weigh=self.weigh)
        self.kept.append(kept)
        result = self._run(outputs, *args, **kwargs)
        found = [Leaf(digest(leaf), _gradient(leaf)) for leaf in leaves]
        # `torch.autograd.grad` leaves nothing on the leaves: what it returns stands for itself.
        given = [t for t in result if _is_tensor(t)] if isinstance(result, (tuple, list)) else []
        found += [Leaf(digest(t), digest(t)) for t in given]
        self.passes.append(Pass(tuple(digest(t) for t in tensors), tuple(found)))
        if self.limit is not None and len(self.passes) >= self.limit:
            self.stopped = True
            raise StopProgram
        return result

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.steps.append(Step(type(optimizer).__name__, tuple(digest(g) for g in gradients)))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _gradient(leaf: torch.Tensor) -> Digest | None:
    return digest(leaf.grad) if leaf.grad is not None else None


def _reach(outputs: list[torch.Tensor], *, weigh: bool) -> tuple[list[torch.Tensor], int]:
    """The leaves that a backward will reach, and the bytes that its graph keeps."""
    leaves: dict[int, torch.Tensor] = {}
    kept: dict[object, int] = {}
    for node in nodes.walk([t.grad_fn for t in outputs]):
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            leaves.setdefault(id(variable), variable)
            continue
        for saved in nodes.saved_values(node) if weigh else ():
            if saved.tensor is not None:
                storage = saved.tensor.untyped_storage()
                kept[storage.data_ptr()] = storage.nbytes()
            elif saved.stale:
                kept[saved.message] = _told_bytes(saved.message)
    return list(leaves.values()), sum(kept.values())


_TOLD = re.compile(r"\[torch\.(?:cuda\.)?(\w+)Tensor \[([\d, ]*)\]\]")
_SIZES = {"Double": 8, "Long": 8, "Half": 2, "BFloat16": 2, "Byte": 1, "Bool": 1, "Char": 1}


def _told_bytes(message: str) -> int:
    """The size of a stale value, which torch does not hand out but tells in its message."""
    match = _TOLD.search(message)
    if match is None:
        return 0
    return _SIZES.get(match[1], 4) * math.prod(int(n) for n in match[2].split(",") if n.strip())

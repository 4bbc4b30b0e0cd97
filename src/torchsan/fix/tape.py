"""Takes down every backward pass and optimizer step of a run."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
import torch.autograd
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchsan.fix.astride import Astride
from torchsan.fix.digests import digest
from torchsan.fix.endings import Endings
from torchsan.fix.keeping import is_copy
from torchsan.fix.trial import Digest, Leaf, Pass, Step
from torchsan.observe import nodes
from torchsan.observe.patches import Patches
from torchsan.observe.program import StopProgram

# A long run is taken down more sparsely as it goes on: entries of each tensor up to this number of passes.
SPARSER = ((10, 512), (100, 32))
LEAST = 4


class Tape:
    """On while the program runs; ends it after so many backward passes."""

    def __init__(self, limit: int | None, *, weigh: bool, retain: bool = False) -> None:
        self.limit = limit
        # Graphs are kept after use, so that one that is used twice does not stop the program.
        self.retain = retain
        # Reading what a healed graph keeps would unpack it, and so take part in what is measured.
        self.weigh = weigh
        self.kept: list[int] = []
        self.passes: list[Pass] = []
        self.steps: list[Step] = []
        self._taken: dict[int, int] = {}
        self.stopped = False
        self.astride = Astride()
        self.endings = Endings()
        self._patches = Patches()
        self._run: Any = None
        self._hook: Any = None

    def start(self) -> None:
        self._run = torch.autograd._engine_run_backward
        self._patches.set(torch.autograd, "_engine_run_backward", self._backward)
        self._hook = register_optimizer_step_pre_hook(self._step)
        self.endings.start()

    def stop(self) -> None:
        self._patches.remove()
        self._hook.remove()
        self.endings.stop()

    def _backward(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [t for t in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if _is_tensor(t)]
        leaves, kept = reach(tensors, weigh=self.weigh)
        if kwargs.get("accumulate_grad", True):
            leaves = among(leaves, asked_for(args))
        self.kept.append(kept)
        if self.retain:
            self.astride.before(tensors)
        if self.retain and len(args) > 1:
            args = (args[0], True, *args[2:])
        result = self._run(outputs, *args, **kwargs)
        if self.retain:
            self.astride.after(leaves)
        entries = _entries(len(self.passes))
        found = [Leaf(digest(leaf, entries), _gradient(leaf, entries)) for leaf in leaves if not is_copy(leaf)]
        # `torch.autograd.grad` leaves nothing on the leaves: what it returns stands for itself.
        given = [t for t in result if _is_tensor(t)] if isinstance(result, (tuple, list)) else []
        found += [Leaf(digest(t, entries), digest(t, entries)) for t in given]
        self.passes.append(Pass(tuple(digest(t, entries) for t in tensors), tuple(found)))
        if self.limit is not None and len(self.passes) >= self.limit:
            self.stopped = True
            raise StopProgram
        return result

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.endings.stepped(optimizer)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        # By the optimizer's own steps: an edit may put backward passes, and steps of others, before or after them.
        before = self._taken.get(id(optimizer), 0)
        self._taken[id(optimizer)] = before + 1
        taken = tuple(digest(g, _entries(before)) for g in gradients)
        self.steps.append(Step(type(optimizer).__name__, taken))


def _entries(before: int) -> int:
    """How many entries stand for a tensor, after so many of its kind."""
    return next((entries for most, entries in SPARSER if before < most), LEAST)


def asked_for(args: Any) -> list[torch.Tensor]:
    """What `backward(inputs=…)` and `torch.autograd.grad` name; nothing where all leaves are meant."""
    return [t for t in args[3] if _is_tensor(t)] if len(args) > 3 and isinstance(args[3], (tuple, list)) else []


def among(leaves: list[torch.Tensor], asked: list[torch.Tensor]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves if any(leaf is one for one in asked)] if asked else leaves


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _gradient(leaf: torch.Tensor, entries: int) -> Digest | None:
    return digest(leaf.grad, entries) if leaf.grad is not None else None


def reach(outputs: list[torch.Tensor], *, weigh: bool) -> tuple[list[torch.Tensor], int]:
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

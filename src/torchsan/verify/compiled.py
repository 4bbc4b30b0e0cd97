"""What only compiled models have: gradients that compiled code computes, graph breaks, and compilations again.

A compiled model can give the right values and the wrong gradients, so both are compared. Everything runs on copies.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchsan.model import Place
from torchsan.observe.compiled.lines import site_of_summaries
from torchsan.verify.subject import Subject, quiet, seed_everything

# Methods of `verify`, and the backend that each compiles with.
BACKENDS = {"compile": "aot_eager", "compile-inductor": "inductor"}
_EXPLAINED, _HINT = re.compile(r"Explanation: (.+)"), re.compile(r"Hint: (.+)")
# Compiled code may order sums in another way.
RELATIVE, ABSOLUTE = 1e-3, 1e-5


@dataclass(frozen=True, slots=True)
class Break:
    """Where dynamo stops tracing, why, and what would keep it going."""

    place: Place | None
    reason: str
    edit: str

    def __str__(self) -> str:
        where = str(self.place) if self.place is not None else "torch's own code"
        return f"graph break at {where}: {self.reason}" + (f" To go on: {self.edit}" if self.edit else "")


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    backend: str
    # `agrees`, `differs`, `fail` where only eager has them, why they were not compared, or empty where there are none.
    gradients: str = ""
    departs: str = ""
    breaks: tuple[Break, ...] = ()
    recompiles: int = 0

    def checks(self) -> dict[str, str]:
        found = {"gradients": self.gradients} if self.gradients else {}
        return {**found, "graph breaks": str(len(self.breaks)), "recompiles": str(self.recompiles)}

    def notes(self, method: str) -> list[str]:
        return [f"{method} ({self.backend}): {found}" for found in self.breaks]


def has_compiler() -> bool:
    """Inductor needs one for the processor's code."""
    return any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl"))


def compiled_facts(subject: Subject, backend: str, random: bool = False) -> CompiledFacts:
    """`random`: the model draws numbers, and a backend may draw others from the same state."""
    breaks = _breaks(subject)
    torch._dynamo.reset()
    eager = _gradients(subject, subject.fresh())
    model = torch.compile(subject.fresh(), backend=backend)
    compiled = _gradients(subject, model)
    before = _compilations()
    _gradients(subject, model)
    recompiles = _compilations() - before
    if random:
        return CompiledFacts(backend, "not compared: the model draws random numbers", "", breaks, recompiles)
    if not eager:
        return CompiledFacts(backend, "", "", breaks, recompiles)
    if compiled is None:
        departs = f"the gradients cannot be had, compiled with {backend}; eager computes them"
        return CompiledFacts(backend, "fail", departs, breaks, recompiles)
    wrong = [name for name, value in eager.items() if not _close(value, compiled.get(name))]
    departs = f"the gradient of {wrong[0]} differs from eager's, compiled with {backend}" if wrong else ""
    return CompiledFacts(backend, "differs" if wrong else "agrees", departs, breaks, recompiles)


def _gradients(subject: Subject, model: Callable[..., Any]) -> dict[str, torch.Tensor] | None:
    """Gradients of parameters and inputs for one fixed scalar of the outputs; None where this cannot be had."""
    seed_everything(subject.seed)
    args, kwargs = subject.inputs()
    leaves, spec = pytree.tree_flatten((args, kwargs))
    leaves = [_as_leaf(leaf) for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    # What `forward` reads of its inputs must be read, not the leaf: a model may write its input.
    given = pytree.tree_map(lambda leaf: leaf * 1 if _is_leaf(leaf) else leaf, (args, kwargs))
    try:
        with quiet(), torch.enable_grad():
            outputs = [t for t in pytree.tree_leaves(model(*given[0], **given[1])) if _has_gradient(t)]
            if not outputs:
                return {}
            sum((output.double() * _weights(output)).sum() for output in outputs).backward()
    except Exception:
        return None
    module: Any = getattr(model, "_orig_mod", model)
    found = {f"`{name}`": p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    inputs = {f"input {n}": leaf.grad for n, leaf in enumerate(leaves) if _is_leaf(leaf) and leaf.grad is not None}
    return {**found, **inputs}


def _as_leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_()
    return value


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad and value.is_floating_point()


def _weights(output: torch.Tensor) -> torch.Tensor:
    """Different for every element, so that errors cannot cancel; the same in every run."""
    count = torch.arange(output.numel(), dtype=torch.float64).reshape(output.shape)
    return torch.cos(count) + 1.5


def _close(expected: torch.Tensor, found: torch.Tensor | None) -> bool:
    if found is None or found.shape != expected.shape:
        return False
    return bool(torch.allclose(found, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))


def _compilations() -> int:
    """How many frames dynamo has compiled so far."""
    from torch._dynamo.utils import compilation_time_metrics

    return max((len(times) for name, times in compilation_time_metrics.items() if "compile_inner" in name), default=0)


def _breaks(subject: Subject) -> tuple[Break, ...]:
    seed_everything(subject.seed)
    args, kwargs = subject.inputs()
    torch._dynamo.reset()
    try:
        with quiet():
            explained = torch._dynamo.explain(subject.fresh())(*args, **kwargs)
    except Exception:
        return ()
    found = []
    for reason in explained.break_reasons:
        site = site_of_summaries(reason.user_stack)
        why, edit = _EXPLAINED.search(reason.reason), _HINT.search(reason.reason)
        text, help_text = why.group(1) if why else reason.reason.splitlines()[0], edit.group(1) if edit else ""
        if text.startswith("generic_jump"):  # dynamo's word for a branch has no explanation of its own
            text = "a branch is decided by a tensor's value, which is not known while compiling."
            help_text = "compute both sides and choose with torch.where, or use torch.cond."
        found.append(Break(site.place if site is not None else None, text, help_text))
    return tuple(dict.fromkeys(found))

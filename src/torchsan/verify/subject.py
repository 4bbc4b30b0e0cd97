"""The model under test with its example inputs, and running it in eager mode as the truth."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchsan.errors import UsageError
from torchsan.model import Place
from torchsan.verify.timing import time_limit


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Whatever is drawn inside, the program's random streams go on as if nothing had been."""
    numpy = sys.modules.get("numpy")
    kept = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        if numpy:
            numpy.random.set_state(kept[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def _nowhere(stream: Any) -> contextlib.AbstractContextManager[Any]:
    out = stream is sys.stdout
    redirect: Any = contextlib.redirect_stdout if out else contextlib.redirect_stderr
    return redirect(io.StringIO())  # type: ignore[no-any-return]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings, no log lines of torch, and not the model's own output once for every run of it."""
    kept = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), _nowhere(sys.stdout), _nowhere(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(kept)


def copy_tensor(leaf: torch.Tensor) -> torch.Tensor:
    try:
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    except RuntimeError:
        return leaf.detach().clone()


def copy_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return copy_tensor(value)
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


@dataclass(frozen=True)
class Plan:
    """How a model is to be called: the leaves of every call, the random state before the first, and in which mode."""

    calls: tuple[list[Any], ...]
    seed: int = 0
    double: bool = False
    left_out: tuple[str, ...] = ()
    training: bool | None = None

    def prepared(self, module: Any) -> Any:
        """A module in the mode and precision that the plan asks for."""
        if self.double:
            module = module.double()
        if self.training is not None and hasattr(module, "train"):
            module.train(self.training)
        return module


@dataclass(slots=True)
class Outcome:
    """What one run (of one or more calls) did: results, or the error, and what it left behind."""

    outputs: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    inputs: list[Any] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


def tensors_of(module: Any) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, detached copies."""
    found: dict[str, torch.Tensor] = {}
    for source in ("named_parameters", "named_buffers"):
        for name, tensor in getattr(module, source, list)():
            if isinstance(tensor, torch.Tensor) and not torch.nn.parameter.is_lazy(tensor):
                found[name] = tensor.detach().clone()
    return found


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every element, where NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    return a.is_floating_point() and bool(((a == b) | (a.isnan() & b.isnan())).all())


def fingerprint(value: Any, depth: int = 0) -> str:
    """A short text that changes when a Python value does; tensors by type, shape and content."""
    if isinstance(value, torch.Tensor):
        kind = type(value).__name__
        if kind == "FakeTensor" or value.is_meta or value.layout != torch.strided:
            return f"{kind}{tuple(value.shape)}"
        total = value.detach().double().sum().item() if value.numel() and not value.is_complex() else 0
        return f"{kind}{tuple(value.shape)}{value.dtype}{total!r}"
    if isinstance(value, bool | int | float | str | bytes | type(None)):
        return repr(value)[:200]
    if depth < 3 and isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{fingerprint(v, depth + 1)}" for k, v in list(value.items())[:50]) + "}"
    if depth < 3 and isinstance(value, list | tuple | set):
        return f"[{len(value)}:" + ",".join(fingerprint(v, depth + 1) for v in list(value)[-20:]) + "]"
    if (
        depth < 2
        and hasattr(value, "__dict__")
        and not isinstance(value, torch.nn.Module | type)
        and not callable(value)
    ):
        return type(value).__name__ + fingerprint(vars(value), depth + 1)
    return type(value).__name__


_OWN = frozenset(vars(torch.nn.Module())) | {"_is_hf_initialized"}


def attributes_of(model: Any) -> dict[str, str]:
    """Plain Python attributes (not parameters, buffers, submodules) of every submodule, as fingerprints."""
    found = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _OWN or name == "training":
                found[f"{path}.{name}" if path else name] = fingerprint(value)
    return found


@dataclass
class Subject:
    """A model with example inputs. The model itself is never run: every run has a fresh deep copy."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    seed: int = 0
    limit: float = 20.0
    origin: str = ""
    home: Place | None = None
    capture: Place | None = None
    reset: Callable[[], None] = lambda: None
    # Arguments of other calls that the model is meant for; those of another structure are left aside.
    more: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leaves, self.spec = pytree.tree_flatten((self.args, self.kwargs))
        self.leaves = [copy_value(leaf) for leaf in self.leaves]
        flat = [pytree.tree_flatten((args, self.kwargs)) for args in self.more]
        self.others = [[copy_value(v) for v in leaves] if spec == self.spec else None for leaves, spec in flat]
        self.tensors = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]

    def fresh(self) -> torch.nn.Module:
        """A copy of the model as it was given, with the globals that it changes put back."""
        self.reset()
        try:
            return copy.deepcopy(self.model, _results_kept(self.model))
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"the model cannot be copied ({type(error).__name__}: {one_line(error)}), "
                "so it cannot be tried without changing it"
            ) from None

    def inputs(
        self, leaves: list[Any] | None = None, left_out: tuple[str, ...] = ()
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = [copy_value(leaf) for leaf in (self.leaves if leaves is None else leaves)]
        args, kwargs = pytree.tree_unflatten(values, self.spec)
        if left_out:
            # Positional arguments after one that is left out are given by name.
            kept = self.positional_before(left_out)
            kwargs = {**dict(zip(self.positional_names[kept:], args[kept:], strict=False)), **kwargs}
            args, kwargs = args[:kept], {name: value for name, value in kwargs.items() if name not in left_out}
        return tuple(args), kwargs

    @property
    def positional_names(self) -> list[str]:
        parameters = self.signature.parameters.values() if self.signature else []
        return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    def positional_before(self, left_out: tuple[str, ...]) -> int:
        """How many positional arguments stay so when some are left out."""
        names = self.positional_names[: len(self.args)]
        return min((names.index(name) for name in left_out if name in names), default=len(self.args))

    @cached_property
    def signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.model.forward)
        except (TypeError, ValueError):
            return None

    @cached_property
    def names(self) -> list[str]:
        """How the user would call each leaf: the parameter's name, with indices into it."""
        parameters = list(self.signature.parameters.values()) if self.signature else []
        paths = pytree.tree_flatten_with_path((self.args, self.kwargs))[0]
        return [_leaf_name(path, parameters) for path, _ in paths]

    def plan(self, leaves: list[Any] | None = None, *, seed: int | None = None, calls: int = 1) -> Plan:
        """The same inputs (the example's unless others are given) for every call."""
        given = self.leaves if leaves is None else leaves
        return Plan((given,) * calls, self.seed if seed is None else seed)

    def run(self, plan: Plan, prepare: Callable[[torch.nn.Module], None] | None = None) -> Outcome:
        """Eager on a fresh copy: the truth. `prepare` may arm the copy first."""
        model = plan.prepared(self.fresh())
        if prepare is not None:
            prepare(model)
        outcome = run_calls(model, self, plan)
        outcome.state = tensors_of(model)
        outcome.attributes = attributes_of(model)
        return outcome


def _results_kept(model: torch.nn.Module) -> dict[int, Any]:
    """Copies of attributes that are results of computations (as weight_norm makes), which deepcopy refuses."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
            for item in inner:
                if isinstance(item, torch.Tensor) and item.grad_fn is not None:
                    memo[id(item)] = item.detach().clone()
    return memo


def _leaf_name(path: tuple[Any, ...], parameters: list[inspect.Parameter]) -> str:
    where = [getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))) for key in path]
    if where[0] == 1:
        name = str(where[1])
    else:
        index = int(where[1])
        named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY)]
        name = named[index] if index < len(named) else f"args[{index}]"
    return name + "".join(f"[{step!r}]" for step in where[2:])


def detached(value: Any) -> Any:
    """Results as they are now: tensors copied, so that later calls cannot change them."""
    return pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def run_calls(function: Callable[..., Any], subject: Subject, plan: Plan) -> Outcome:
    outcome = Outcome()
    try:
        with quiet(), time_limit(subject.limit):
            seed_everything(plan.seed)
            for leaves in plan.calls:
                args, kwargs = subject.inputs(leaves, plan.left_out)
                outcome.outputs.append(detached(function(*args, **kwargs)))
                outcome.inputs = [] if plan.left_out else pytree.tree_leaves((args, kwargs))
    except KeyboardInterrupt:
        raise
    except (Exception, SystemExit) as error:
        outcome.error = error
    return outcome


def one_line(error: BaseException | str, limit: int = 160) -> str:
    """The sentence of an error that says most, on one line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"

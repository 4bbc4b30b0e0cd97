"""Runs the graph of a region once without data, in eager, to learn what each of its lines writes and saves.

Nothing of the program runs here and no number is computed: the graph is dynamo's, the tensors are fake, and they live
in a world of their own, so that nothing can add a guard, draw a random number or touch the program's memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from torch.utils._python_dispatch import TorchDispatchMode

from torchsan import compat, compat_compile
from torchsan.model.events import WriteKind
from torchsan.observe.clock import clock
from torchsan.observe.compiled.lines import LineSite, node_site
from torchsan.observe.compiled.records import Inner, Refused, RegionWrite, Replay
from torchsan.observe.compiled.scopes import NOTHING, Items, Part, Scopes
from torchsan.observe.compiled.spoilt import spoilt_by
from torchsan.observe.compiled.writing import UNKNOWN, manner_on_fakes, operands_of, view_of
from torchsan.observe.ledger import Written
from torchsan.observe.sites import Site
from torchsan.observe.tensors import byte_range, is_inference, memory_of

_OPERATORS = {"setitem": "__setitem__", **{f"i{n}": f"__i{n}__" for n in ("add", "sub", "mul", "truediv", "pow")}}
# Ops that write the running statistics without saying so in their schema: position of these arguments.
_STATISTICS = {"aten::native_batch_norm": (3, 4, 5), "aten::_native_batch_norm_legit": (3, 4, 5)}


def write_site(node: torch.fx.Node) -> LineSite | None:
    """The line of a node that writes; dynamo leaves out the frames of torch's own layers and functions."""
    site = node_site(node)
    return site.inside_torch() if site is not None and site.library is None and _is_torchs_write(node) else site


def _is_torchs_write(node: torch.fx.Node) -> bool:
    """Is it not the user's line itself that writes, but a layer, or a function with `inplace=True`?"""
    stack = node.meta.get("source_fn_stack")
    if stack and isinstance(stack[-1][1], type):
        return True
    op = node_op(node)
    return node.op == "call_function" and not op.endswith("_") and "out" not in node.kwargs


def node_op(node: torch.fx.Node) -> str:
    """The name that a write in eager would have: `add_`, `__iadd__`, `__setitem__`."""
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return _OPERATORS.get(name, name)


def _op_and_kind(node: torch.fx.Node) -> tuple[str, WriteKind]:
    if "/torch/optim/" in str(node.meta.get("stack_trace")).replace("\\", "/"):
        return "optimizer.step", "optimizer"
    return node_op(node), "op"


class _Writes(TorchDispatchMode):  # type: ignore[misc]
    """Logs what every op writes, by its schema."""

    def __init__(self, player: _Player) -> None:
        super().__init__()
        self.player = player

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = clock.now()
        result = function(*args, **kwargs)
        schema = getattr(function, "_schema", None)
        if schema is not None:
            for position, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = args[position] if position < len(args) else kwargs.get(argument.name)
                    self._note(value, before, schema.name)
            statistics = _STATISTICS.get(schema.name)
            if statistics is not None and len(args) > statistics[2] and args[statistics[2]]:
                for position in statistics[:2]:
                    self.player.note_statistics(args[position])
        return result

    def _note(self, value: Any, before: int, op: str) -> None:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                self.player.note_write(tensor, before, op.rpartition(":")[2])


class _Player(torch.fx.Interpreter):  # type: ignore[misc]
    def __init__(self, module: torch.fx.GraphModule, result: Replay, scopes: Mapping[torch.fx.Node, Scopes]) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.result = result
        self.scopes = scopes
        self.at: torch.fx.Node | None = None
        self.targets: dict[int, int] = {}
        # The fakes of what is known from outside, by target, and which placeholder is which input.
        self.wholes: dict[int, torch.Tensor] = {}
        self.inputs = {node: i for i, node in enumerate(module.graph.find_nodes(op="placeholder"))}
        # Writes of the node that runs, with the version that their target had.
        self.pending: list[tuple[RegionWrite, int]] = []
        self.fake: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
        self.unknown = Site((lambda: None).__code__, 0, None)

    def run_node(self, node: torch.fx.Node) -> Any:
        self.at = node
        self.pending.clear()
        result = super().run_node(node)
        for write, version in self.pending:
            # Versions are counted when an op is done.
            self._add(replace(write, hidden=_version(self.wholes[write.target]) == version))
        return result

    def bring(self, value: Any, target: int | None = None) -> Any:
        """A fake of a tensor from outside: of an input, or of what the graph holds itself."""
        if not isinstance(value, torch.Tensor):
            return value
        fake = self.fake(value)
        memory = memory_of(fake)
        if memory is not None and memory not in self.targets:
            if target is None:
                self.result.held.append(weakref.ref(value))
                target = -len(self.result.held)
            self.targets[memory] = target
            self.wholes[target] = fake
        return fake

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.bring(super().get_attr(target, args, kwargs))

    def refused(self, error: Exception) -> Refused | None:
        if self.at is None:
            return None
        given = [self.env.get(value) if isinstance(value, torch.fx.Node) else None for value in self.at.args]
        made = [i for i, value in enumerate(given) if isinstance(value, torch.Tensor) and is_inference(value)]
        return Refused(error, self.at, made)

    def site(self) -> Site:
        found = node_site(self.at) if self.at is not None else None
        return found if found is not None else self.unknown

    def note_write(self, tensor: torch.Tensor, before: int, dispatched: str) -> None:
        memory, node = memory_of(tensor), self.at
        if memory is None or node is None:
            return
        site = write_site(node)
        op, kind = _op_and_kind(node)
        try:
            version = tensor._version + 1
        except Exception:
            version = 0
        if site is not None:
            self.result.ledger.add(memory, Written(before, site, op, version, kind, *byte_range(tensor)))
        if memory in self.targets:
            target = self.targets[memory]
            whole = self.wholes[target]
            args = self.fetch_args_kwargs_from_env(node)[0]
            # `relu(x, inplace=True)` is told to be one only by what it comes down to.
            manner = manner_on_fakes(op if op.endswith("_") else dispatched, args)
            receiver = node.args[0] if node.args else None
            alone = receiver.name if isinstance(receiver, torch.fx.Node) and args and args[0] is tensor else ""
            write = RegionWrite(
                target, op, site, kind, False, view_of(tensor, whole), tuple(whole.shape),
                operands_of(node, self.inputs), manner, alone,
                tuple(scope.told(self.part) for scope in self.scopes.get(node, ())),
            )  # fmt: skip
            self.pending.append((write, _version(whole)))
        own = memory not in self.targets
        if node in self.scopes and (own or any(scope.has_lists() for scope in self.scopes[node])):
            known = (given for given in node.all_input_nodes if memory_of(self.env.get(given)) == memory)
            written = next(known, None)
            if written is not None:
                self.result.inner[node] = Inner(written, op if op.endswith("_") else dispatched, own)

    def part(self, known: Any) -> Any:
        """What a variable holds, as far as it lies in memory from outside."""
        if isinstance(known, Items):
            return NOTHING
        if not isinstance(known, torch.fx.Node):
            return known
        value = self.env.get(known)
        memory = memory_of(value) if isinstance(value, torch.Tensor) else None
        if memory is None or memory not in self.targets:
            return NOTHING
        whole = self.wholes[self.targets[memory]]
        return Part(known.name, self.targets[memory], view_of(value, whole), tuple(whole.shape))

    def note_statistics(self, tensor: Any) -> None:
        memory = memory_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if memory in self.targets and self.at is not None:
            self._add(RegionWrite(self.targets[memory], "batch_norm", node_site(self.at), "batch_norm"))

    def _add(self, write: RegionWrite) -> None:
        writes = self.result.writes
        known = next((i for i, other in enumerate(writes) if write.is_like(other)), None)
        if known is None:
            writes.append(write)
        elif writes[known] != write:
            # A loop: it writes now this and now that, and what it writes there is not one thing.
            writes[known] = replace(writes[known], view=None, operands=(UNKNOWN,), hidden=False)


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except Exception:
        return -1  # inference tensors count no versions


@contextmanager
def _told_by(player: _Player) -> Iterator[None]:
    """Every autograd node made meanwhile is told with the line of the graph's node."""
    anomaly, check_nan = compat.is_anomaly(), compat.is_anomaly_check_nan()
    original = torch.fx.traceback.format_stack
    torch.fx.traceback.format_stack = lambda: player.site().mark
    compat.set_anomaly(True, False)
    try:
        yield
    finally:
        compat.set_anomaly(anomaly, check_nan)
        torch.fx.traceback.format_stack = original


@contextmanager
def state_kept() -> Iterator[None]:
    """Graphs switch grad mode and autocast; one that stops halfway must leave no trace."""
    grad = torch.is_grad_enabled()
    cached = torch.is_autocast_cache_enabled()
    kinds = ("cpu", "cuda")
    casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_autocast_cache_enabled(cached)
        for kind, enabled, dtype in casts:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)


def replay(
    module: torch.fx.GraphModule, inputs: list[Any], scopes: Mapping[torch.fx.Node, Scopes] | None = None
) -> Replay:
    """Run the graph on fakes of these inputs. What could be learnt before it stopped is kept."""
    result = Replay()
    if any(compat_compile.is_fake(value) for value in inputs):
        return result
    player = _Player(module, result, scopes or {})
    try:
        with state_kept(), compat_compile.fake_mode() as fake:
            player.fake = fake
            numbers = map(compat_compile.plain_number, inputs)
            fakes = [player.bring(value, index) for index, value in enumerate(numbers)]
            with _told_by(player), _Writes(player):
                output = player.run(*fakes)
            result.roots = [t.grad_fn for t in _tensors(output) if t.grad_fn is not None]
            result.complete = True
            made = [t for t in player.env.values() if isinstance(t, torch.Tensor)]
            result.size = sum(t.numel() * t.element_size() for t in made)
            result.on_processor = all(t.device.type == "cpu" for t in made)
            hidden = {(write.target, write.site) for write in result.writes if write.hidden and write.kind == "op"}
            result.spoilt = list(spoilt_by(result.roots, result.ledger, player.targets, hidden))
    except Exception as error:
        tell_debugger(error)
        result.refused = player.refused(error)
    result.last = _last_line(module)
    return result


def tell_debugger(error: Exception) -> None:
    import os

    if os.environ.get("TORCHSAN_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _last_line(module: torch.fx.GraphModule) -> LineSite | None:
    output = next((node for node in module.graph.nodes if node.op == "output"), None)
    made = [node for node in output.all_input_nodes if node.op != "placeholder"] if output is not None else []
    return next((site for node in reversed(made) if (site := node_site(node)) is not None), None)

"""Runs the graph of a region once without data, in eager, to learn what each of its lines writes and saves.

Nothing of the program runs here and no number is computed: the graph is dynamo's, the tensors are fake, and they live
in a world of their own, so that nothing can add a guard, draw a random number or touch the program's memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from torch.utils._python_dispatch import TorchDispatchMode

from torchsan import compat, compat_compile
from torchsan.model.events import WriteKind
from torchsan.observe.clock import clock
from torchsan.observe.compiled.lines import LineSite, node_op, node_site, write_site
from torchsan.observe.compiled.nested import overheard
from torchsan.observe.compiled.private import state_kept, told_by
from torchsan.observe.compiled.records import Inner, Refused, RegionWrite, Replay
from torchsan.observe.compiled.scopes import NOTHING, Items, Part, Scopes
from torchsan.observe.compiled.spoilt import spoilt_by
from torchsan.observe.compiled.writing import UNKNOWN, manner_on_fakes, operands_of, view_of
from torchsan.observe.ledger import Written
from torchsan.observe.sites import Site
from torchsan.observe.tensors import byte_range, is_inference, memory_of

# Ops that write the running statistics without saying so in their schema: position of these arguments.
_STATISTICS = {"aten::native_batch_norm": (3, 4, 5), "aten::_native_batch_norm_legit": (3, 4, 5)}


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
        # Fakes of inputs, by identity: which input each is. And names of fakes, likewise.
        self.brought: dict[int, int] = {}
        # Of memory that the graph makes: the first tensor on it, and the lines that write past its version.
        self.firsts: dict[int, torch.Tensor] = {}
        self.unseen: set[tuple[int, LineSite | None]] = set()
        self.inner_pending: list[tuple[int, LineSite | None, int]] = []
        self.names: dict[int, str] = {}
        # Writes of the node that runs, with the version that their target had.
        self.pending: list[tuple[RegionWrite, int]] = []
        self.fake: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
        self.unknown = Site((lambda: None).__code__, 0, None)

    def run_node(self, node: torch.fx.Node) -> Any:
        self.entering(node)
        result = super().run_node(node)
        self._settle()
        self._note_first(result)
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, torch._ops.HigherOrderOperator):
            args = tuple(overheard(value, self) for value in args)
        return super().call_function(target, args, kwargs)

    def entering(self, node: torch.fx.Node) -> None:
        self._settle()
        self.at = node

    def given(self, node: torch.fx.Node, value: Any) -> None:
        """What a node of a graph inside this one has made."""
        self._settle()
        self._note_first(value)
        self.env[node] = value
        if node.op == "placeholder" and id(value) in self.brought:
            self.inputs[node] = self.brought[id(value)]

    def _settle(self) -> None:
        for write, version in self.pending:
            # Versions are counted when an op is done.
            self._add(replace(write, hidden=_version(self.wholes[write.target]) == version))
        self.pending.clear()
        for memory, site, version in self.inner_pending:
            if _version(self.firsts[memory]) == version:
                self.unseen.add((memory, site))
        self.inner_pending.clear()

    def _note_first(self, value: Any) -> None:
        for tensor in _tensors(value):
            memory = memory_of(tensor)
            if memory is not None:
                self.firsts.setdefault(memory, tensor)

    def _name(self, node: torch.fx.Node, value: torch.Tensor) -> str:
        """One for each tensor: several nodes may stand for it, and graphs inside this one have names of their own."""
        return self.names.setdefault(id(value), f"{len(self.names)} {node.name}")

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
        if memory in self.firsts:
            self.inner_pending.append((memory, site, _version(self.firsts[memory])))
        if site is not None:
            self.result.ledger.add(memory, Written(before, site, op, version, kind, *byte_range(tensor)))
        if memory in self.targets:
            target = self.targets[memory]
            whole = self.wholes[target]
            args = self.fetch_args_kwargs_from_env(node)[0]
            # `relu(x, inplace=True)` is told to be one only by what it comes down to.
            manner = manner_on_fakes(op if op.endswith("_") else dispatched, args)
            receiver = node.args[0] if node.args else None
            alone = (
                self._name(receiver, tensor)
                if isinstance(receiver, torch.fx.Node) and args and args[0] is tensor
                else ""
            )
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
        return Part(self._name(known, value), self.targets[memory], view_of(value, whole), tuple(whole.shape))

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
            writes[known] = replace(writes[known], operands=(UNKNOWN,), hidden=False)


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except Exception:
        return -1  # inference tensors count no versions


def replay(
    module: torch.fx.GraphModule, inputs: list[Any], scopes: Mapping[torch.fx.Node, Scopes] | None = None
) -> Replay:
    """Run the graph on fakes of these inputs. What could be learnt before it stopped is kept."""
    result = Replay()
    if any(compat_compile.is_fake(value) for value in inputs):
        return result
    player = _Player(module, result, scopes or {})
    try:
        with state_kept(), compat.saved_unseen(), compat_compile.fake_mode() as fake:
            player.fake = fake
            numbers = map(compat_compile.plain_number, inputs)
            fakes = [player.bring(value, index) for index, value in enumerate(numbers)]
            player.brought = {id(fake): index for index, fake in enumerate(fakes) if isinstance(fake, torch.Tensor)}
            with told_by(lambda: player.site().mark), _Writes(player):
                output = player.run(*fakes)
            result.roots = [t.grad_fn for t in _tensors(output) if t.grad_fn is not None]
            result.complete = True
            made = {id(t): t for t in player.env.values() if isinstance(t, torch.Tensor)}.values()
            result.size = sum(t.numel() * t.element_size() for t in made)
            result.on_processor = all(t.device.type == "cpu" for t in made)
            hidden = {(write.target, write.site) for write in result.writes if write.hidden and write.kind == "op"}
            result.spoilt = list(spoilt_by(result.roots, result.ledger, player.targets, hidden, player.unseen))
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

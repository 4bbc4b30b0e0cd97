"""Does a write give the same values when it is done on memory of its own? If not, it overwrote what it had to read."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchsan.model.events import Line, Memory, OperandOverwritten, OverlapWritten
from torchsan.observe import expressions as syntax
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.holders.extents import Extent, extent_of
from torchsan.observe.holders.manner import is_out
from torchsan.observe.holders.resolving import root_name
from torchsan.observe.objects import is_a, is_tensor, sequence_of
from torchsan.observe.recorder import Recorder

MAX_ELEMENTS = 1 << 22
# Two ways to compute one thing round differently; memory that was overwritten too early differs by far more.
TOLERANCE = 1e-3
_detach = torch._C.TensorBase.detach


class WriteProof:
    """Done only for writes whose memory meets itself or an operand, at the first visits of a line."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def before(self, writing: Writing) -> Callable[[], None] | None:
        """What to do after the write, if it needs a proof."""
        extent, tensor = writing.extent, writing.tensor
        if extent is None or tensor.numel() > MAX_ELEMENTS:
            return None
        if tensor.device.type != "cpu":
            return None  # to compare values would make the device wait
        if writing.original is not None and extent.folded():
            expected = self._expected(writing, tensor)
            return lambda: self._compare(writing, tensor, expected, self._tell_folded)
        met = any(_meets_unequal(writing, value, extent) for value in _tensors(_operands(writing)))
        if writing.original is not None and met:
            expected = self._expected(writing, tensor)
            return lambda: self._compare(writing, tensor, expected, self._tell_operand)
        whole = self._folded_root(writing, extent)
        if whole is not None:
            earlier = _detach(whole).clone()
            return lambda: self._others_changed(writing, whole, earlier)
        return None

    def _expected(self, writing: Writing, tensor: torch.Tensor) -> torch.Tensor | None:
        """The result of the same op on copies, before the op itself is done."""
        try:
            with _undisturbed():
                own = _detach(tensor).clone(memory_format=torch.contiguous_format)
                operands = [_copied(value) for value in _operands(writing)]
                kwargs = {k: _copied(v) for k, v in writing.kwargs.items() if k != "out"}
                assert writing.original is not None
                if is_out(writing.op):
                    result = writing.original(*operands, **kwargs)
                    return result if is_tensor(result) and result.shape == tensor.shape else None
                writing.original(own, *operands, **kwargs)
                return own
        except Exception:
            return None  # what cannot be done on copies proves nothing

    def _compare(
        self,
        writing: Writing,
        tensor: torch.Tensor,
        expected: torch.Tensor | None,
        tell: Callable[[Writing, float], None],
    ) -> None:
        if expected is None or expected.shape != tensor.shape:
            return
        with _undisturbed():
            got, want = _detach(tensor).to(torch.float64), expected.to(torch.float64)
            if torch.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE * 1e-3, equal_nan=True):
                return
            difference = float((got - want).abs().nan_to_num(0.0, 0.0, 0.0).max())
        tell(writing, difference)

    def _tell_operand(self, writing: Writing, difference: float) -> None:
        self.recorder.emit(OperandOverwritten(Memory(writing.name), writing.event, "operand", difference=difference))

    def _tell_folded(self, writing: Writing, difference: float) -> None:
        extent = writing.extent
        assert extent is not None
        self._tell_overlap(writing, extent, tuple(writing.tensor.shape))

    def _tell_overlap(self, writing: Writing, extent: Extent, shape: tuple[int, ...]) -> None:
        sharing = max(2, round(extent.count / max(1, len(extent.addresses())))) if extent.count <= 4096 else 2
        origin = maker(writing)
        self.recorder.emit(OverlapWritten(Memory(writing.name, shape=shape), writing.event, origin, sharing))

    # -- a row of an expanded tensor ----------------------------------------------------------------

    def _folded_root(self, writing: Writing, extent: Extent) -> torch.Tensor | None:
        """`rows` for `rows[i].add_(1)`, when the rows are one memory."""
        for ancestor in writing.lineage:
            value = ancestor.value
            if not is_tensor(value) or value is writing.tensor or value.numel() > MAX_ELEMENTS:
                continue
            whole = extent_of(value)
            if whole is not None and whole.folded() and whole.meets(extent) and value.numel() > writing.tensor.numel():
                return value
        return None

    def _others_changed(self, writing: Writing, whole: torch.Tensor, earlier: torch.Tensor) -> None:
        with _undisturbed():
            changed = int((_detach(whole) != earlier).sum())
        extent = extent_of(whole)
        if extent is not None and changed > writing.tensor.numel():
            self._tell_overlap(writing, extent, tuple(whole.shape))


def _operands(writing: Writing) -> tuple[Any, ...]:
    return writing.args if is_out(writing.op) else writing.args[1:]


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if is_tensor(value):
            yield value
        else:
            yield from _tensors(sequence_of(value))


def _meets_unequal(writing: Writing, operand: torch.Tensor, extent: Extent) -> bool:
    """Elementwise ops may write what they read in the same order; others may not, so equal extents count for them."""
    found = extent_of(operand)
    if found is None or not found.meets(extent):
        return False
    return found != extent or is_out(writing.op) or writing.op.startswith(("addmm", "baddbmm", "addbmm", "addmv"))


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return _detach(value).clone()
    if is_a(value, list):
        return [_copied(item) for item in sequence_of(value)]
    if type(value) is tuple:
        return tuple(_copied(item) for item in value)
    return value


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Our own arithmetic: no graph, and the random stream as it was."""
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_rng_state(state)


def maker(writing: Writing) -> Line | None:
    """Where the written name got its value; through one call of a function of the same file to its `return`."""
    file, node = writing.file, writing.node
    name = root_name(writing.written) if writing.written is not None else ""
    if file is None or node is None or not name:
        return None
    found = syntax.origin(file, node, name)
    if found is None:
        return None
    statement, value = found
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        for function in ast.walk(file.tree):
            if isinstance(function, ast.FunctionDef) and function.name == value.func.id:
                returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
                if len(returns) == 1 and returns[0].value is not None:
                    return Line(file.place(returns[0].value, writing.place))
    return Line(file.place(statement, writing.place))

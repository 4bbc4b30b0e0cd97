"""Python text: how to reproduce a counterexample, and how to make the capture that is recommended."""

from __future__ import annotations

from typing import Any

import torch

from torchsan.verify.compare import flatten
from torchsan.verify.compiled import BACKENDS
from torchsan.verify.distribution import CONFIRMING, ERRORS, FIRST_SEED
from torchsan.verify.subject import Subject
from torchsan.verify.variants import Variant

GIVEN = "# model, args, kwargs: as they were given to torchsan.verify"


def shapes_text(shapes: Any) -> str:
    """`dynamic_shapes` as one writes it."""
    if isinstance(shapes, dict):
        return "{" + ", ".join(f"{k!r}: {shapes_text(v)}" for k, v in shapes.items()) + "}"
    if isinstance(shapes, tuple):
        inner = ", ".join(shapes_text(v) for v in shapes)
        return f"({inner},)" if len(shapes) == 1 else f"({inner})"
    if isinstance(shapes, list):
        return "[" + ", ".join(shapes_text(v) for v in shapes) + "]"
    return "None" if shapes is None else "torch.export.Dim.AUTO"


def _example_text(subject: Subject, example: list[Any] | None) -> str:
    """Lines that enlarge the example where a size of 1 would have been fixed."""
    lines = []
    for index, (old, new) in enumerate(zip(subject.leaves, example or subject.leaves, strict=True)):
        if isinstance(old, torch.Tensor) and old.shape != new.shape:
            steps = "".join(
                f".index_select({dim}, torch.arange({b}) % {a})"
                for dim, (a, b) in enumerate(zip(old.shape, new.shape, strict=True))
                if a != b
            )
            lines.append(f"leaves[{index}] = leaves[{index}]{steps}  # export would fix a size of 1")
    if not lines:
        return ""
    return "\n".join(
        [
            "larger = list(leaves)",
            *(line.replace("leaves[", "larger[") for line in lines),
            "args, kwargs = torch.utils._pytree.tree_unflatten(larger, tree)",
        ]
    )


BOUND = """\
class Bound(torch.nn.Module):  # tracing holds only tensors: fix the rest
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *tensors):
        values = iter(tensors)
        leaves, tree = torch.utils._pytree.tree_flatten((args, kwargs))
        leaves = [next(values) if isinstance(x, torch.Tensor) else x for x in leaves]
        a, k = torch.utils._pytree.tree_unflatten(leaves, tree)
        return tensors_of(self.model(*a, **k))
"""


def capture_text(
    method: str, dynamic: Any = None, bound: bool = False, kwargs: bool = False, unchecked: bool = False
) -> str:
    """The call that captures `model` into `captured`."""
    more = ", kwargs" if kwargs else ""
    unasked = ", check_trace=False" if unchecked else ""
    shapes = f", dynamic_shapes={shapes_text(dynamic)}" if dynamic is not None else ""
    if method == "jit.trace" and bound:
        leaves = "torch.utils._pytree.tree_leaves((args, kwargs))"
        given = f"given = [t for t in {leaves} if isinstance(t, torch.Tensor)]"
        return f"{BOUND}\n\n{given}\ncaptured = torch.jit.trace(Bound(model), tuple(given){unasked})"
    if method == "jit.trace":
        return f"captured = torch.jit.trace(model, args{unasked})"
    if method == "jit.script":
        return "captured = torch.jit.script(model)"
    if method == "onnx":
        named = ", kwargs=kwargs" if kwargs else ""
        return f"captured = torch.onnx.export(model, args{named}, dynamo=True{shapes})"
    if method in BACKENDS:
        return f'captured = torch.compile(model, backend="{BACKENDS[method]}")'
    strict = ", strict=True" if method == "export-strict" else ""
    return f"captured = torch.export.export(model, args{more}{shapes}{strict})"


TENSORS_OF = """\
def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return (value,)
    items = value.values() if hasattr(value, "values") else value if isinstance(value, (list, tuple)) else ()
    return tuple(t for item in items for t in tensors_of(item))
"""


# A number of the model's that is a tensor of the capture's is compared as such.
NUMBERS = """\
    if isinstance(value, (bool, int, float)):
        return (torch.tensor(value),)
"""

SEEDS = "torch.manual_seed({0}); random.seed({0}); numpy.random.seed({0})"
LEAVES = "torch.utils._pytree.tree_leaves((a, k))"


def _calls(captured: Any, seed: int, effect: str, left_out: list[str]) -> list[str]:
    """Both run on the same inputs; what is compared is what they return and what they leave behind."""
    call = "function(*a, **k)"
    if captured.bound:
        only = f"(t for t in {LEAVES} if isinstance(t, torch.Tensor))"
        call = f"(function(*a, **k) if function is eager else function(*{only}))"
    left = "tensors_of(a) + tensors_of(k)"
    if effect:
        prefix = "model." if captured.bound else ""
        left = f"(state_of(function)[{effect!r} if function is eager else {prefix + effect!r}],)"
    return [
        "results = []",
        "for function in (eager, run):",
        f"    {SEEDS.format(seed)}",
        "    for given in calls:",
        "        a, k = torch.utils._pytree.tree_unflatten(copy.deepcopy(given), tree)",
        *(f"        {line}" for line in left_out),
        f"        out = tensors_of({call})",
        f"        results.append([t.detach().clone() for t in out + {left}])",
        "want, got = results[: len(calls)], results[len(calls) :]",
    ]


def _inputs(subject: Subject, variant: Variant) -> list[str]:
    """`calls`: the inputs of every call."""
    if not variant.each:
        lines = [line for index, text in variant.edits.items() for line in _edit(subject, "leaves", index, text)]
        return [*lines, f"calls = [leaves] * {variant.calls}"]
    lines = ["calls = []"]
    for edits in variant.each:
        lines.append("given = list(leaves)")
        lines += [line for index, text in edits.items() for line in _edit(subject, "given", index, text)]
        lines.append("calls.append(given)")
    return lines


def _edit(subject: Subject, where: str, index: int, expression: str) -> list[str]:
    return [f"x = leaves[{index}].detach()  # {subject.names[index]}", f"{where}[{index}] = {expression}"]


def _left_out(subject: Subject, variant: Variant) -> list[str]:
    if not variant.left_out:
        return []
    kept = subject.positional_before(variant.left_out)
    lines = []
    if kept < len(subject.args):
        lines.append(f"a, k = a[:{kept}], {{**dict(zip({subject.positional_names[kept:]}, a[{kept}:])), **k}}")
    return [*lines, f"k = {{name: value for name, value in k.items() if name not in {variant.left_out}}}"]


def _distributions(captured: Any, left_out: list[str]) -> list[str]:
    """Means and variances over many random states, which chance moves by no more than six standard errors."""
    number, start = CONFIRMING, 2 * FIRST_SEED
    tolerance = captured.tolerance
    call = f"function(*(t for t in {LEAVES} if isinstance(t, torch.Tensor)))" if captured.bound else "function(*a, **k)"
    return [
        "def samples(function):",
        "    rows = []",
        f"    for seed in range({start}, {start + number}):",
        f"        {SEEDS.format('seed')}",
        "        found = ()",
        "        for given in calls:",
        "            a, k = torch.utils._pytree.tree_unflatten(copy.deepcopy(given), tree)",
        *(f"            {line}" for line in left_out),
        f"            found += tensors_of(function(*a, **k) if function is eager else {call})",
        "        rows.append(torch.cat([t.detach().double().flatten() for t in found]))",
        "    return torch.stack(rows)",
        "",
        "",
        "want, got = samples(eager), samples(run)",
        "middle = torch.cat([want, got]).mean(0)",
        'for name, w, g in (("mean", want, got), ("variance", (want - middle) ** 2, (got - middle) ** 2)):',
        f"    margin = {ERRORS} * ((w.var(0) + g.var(0)) / {number}).sqrt()"
        f" + {tolerance.atol} + {tolerance.rtol} * w.mean(0).abs()",
        "    assert ((w.mean(0) - g.mean(0)).abs() <= margin).all(), name",
    ]


STATE_OF = """\
def state_of(function):
    found = (getattr(function, name, dict)() for name in ("named_parameters", "named_buffers"))
    return {name: tensor for each in found for name, tensor in dict(each).items()}

"""


COPY = ["eager = copy.deepcopy(model)"]
RESULTS = [
    "parts = [part for module in model.modules() for part in vars(module).values()]",
    "made = [part for part in parts if isinstance(part, torch.Tensor) and part.grad_fn is not None]",
    "results = {id(part): part.detach().clone() for part in made}  # deepcopy refuses what was computed (weight_norm)",
]
RESTORED = [
    "for name, tensor in state_of(captured).items():  # tracing ran the model, and shares its state",
    "    if not torch.equal(tensor, start[name.removeprefix({0!r})]):",
    "        tensor.detach().copy_(start[name.removeprefix({0!r})])",
]
SAVED = [
    "stream = io.BytesIO()  # what was saved and loaded is what will be deployed",
    "torch.jit.save(captured, stream)",
    "captured = torch.jit.load(io.BytesIO(stream.getvalue()))",
]


def reproduction(subject: Subject, captured: Any, found: Any, method: str) -> str:
    """A program that raises where capture and eager part."""
    variant: Variant = found.variant
    effect = found.difference.where if found.difference.kind == "state" else ""
    run = "captured" if method not in ("export", "export-strict", "export-static") else "captured.module()"
    lines = ["import copy, io, random", "import numpy, torch", "", "", _tensors_of(found), ""]
    lines += [STATE_OF]
    lines += [subject.origin or GIVEN]
    if subject.others and not subject.origin:
        lines += ["others = [torch.utils._pytree.tree_leaves((more_args, kwargs)) for more_args in more]  # as given"]
    lines += [*RESULTS, "eager = copy.deepcopy(model, results)"] if _has_own_tensors(subject.model) else COPY
    lines += [
        "start = copy.deepcopy(state_of(model))",
        "leaves, tree = torch.utils._pytree.tree_flatten((args, kwargs))",
    ]
    lines += ["leaves = copy.deepcopy(leaves)"]
    lines += [line for line in [_example_text(subject, captured.example)] if line]
    lines += [SEEDS.format(subject.seed)]
    lines += [captured.source or _capture_text(subject, captured, method)]
    if method == "jit.trace":
        lines += RESTORED[:1] + [line.format("model." if captured.bound else "") for line in RESTORED[1:]]
    if method in ("jit.trace", "jit.script") and not captured.unsaved:
        lines += SAVED
    lines += [f"run = {run}", ""]
    lines += _inputs(subject, variant)
    if variant.double:
        lines += ["eager, run = eager.double(), run.double()"]
        lines += [
            "calls = [[t.double() if getattr(t, 'dtype', None) == torch.float32 else t for t in c] for c in calls]"
        ]
    if variant.training is not None:
        lines += [f"eager.train({variant.training})"]
        lines += [f"run.train({variant.training})"] if method != "onnx" else []
    if found.in_distribution:
        return "\n".join(lines + _distributions(captured, _left_out(subject, variant))) + "\n"
    lines += _calls(captured, variant.seed, effect, _left_out(subject, variant))
    tolerance = captured.tolerance
    lines += [f"torch.testing.assert_close(got, want, rtol={tolerance.rtol}, atol={tolerance.atol}, equal_nan=True)"]
    return "\n".join(lines) + "\n"


def _has_own_tensors(model: torch.nn.Module) -> bool:
    """May attributes be results of computations when the model is made? They may be others by now."""
    return any(isinstance(part, torch.Tensor) for module in model.modules() for part in vars(module).values())


def _tensors_of(found: Any) -> str:
    """The function that lists results: with plain numbers where the capture has made tensors of them."""
    want, got = ([leaf for _, leaf in flatten(outcome.outputs)] for outcome in (found.want, found.got))
    tensors = [sum(isinstance(leaf, torch.Tensor) for leaf in leaves) for leaves in (want, got)]
    if len(want) != len(got) or tensors[0] == tensors[1]:
        return TENSORS_OF
    head, rest = TENSORS_OF.split("    items", 1)
    return f"{head}{NUMBERS}    items{rest}"


def _capture_text(subject: Subject, captured: Any, method: str) -> str:
    return capture_text(method, captured.dynamic, captured.bound, bool(subject.kwargs), captured.unchecked)


def inputs_text(subject: Subject, variant: Variant) -> str:
    """The counterexample in a few words."""
    parts = [f"{subject.names[i]} = {text.replace('x.', subject.names[i] + '.')}" for i, text in variant.edits.items()]
    if not parts:
        return variant.label
    return variant.label if sum(map(len, parts)) > 70 else ", ".join(parts)

"""Programs full of objects that answer for themselves: none of them may be called by us, nor hide a finding."""

from __future__ import annotations

import ast
import itertools
import random
import subprocess
import sys
import types
from pathlib import Path

import pytest

import torchsan
from torchsan.observe import objects

# Every object below raises, and says so in `touched`, whatever is asked of it.
HOSTILE = """
import sys, types
import torch
from torch import nn

import torch._dynamo  # torch looks through all modules when an optimizer first needs this

touched = []

def trap(name):
    def raising(self, *args, **kwargs):
        touched.append(name)
        raise SystemError(name)
    return raising

NAMES = ["__getattr__", "__getattribute__", "__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__repr__",
         "__str__", "__contains__", "__call__", "__int__", "__index__", "__get__", "__instancecheck__", "__dir__",
         "__subclasscheck__", "__lt__", "__array__", "__torch_function__", "__format__", "__next__", "__enter__"]
traps = {name: trap(name) for name in NAMES}
meta_traps = {name: trap("meta " + name) for name in NAMES if name not in ("__call__", "__hash__", "__get__")}
Meta = type("Meta", (type,), meta_traps)

def lying(self):
    touched.append("__class__")
    return nn.Module

class Config(dict):
    __getattr__ = dict.__getitem__

class HostileList(list):
    __len__ = __iter__ = __getitem__ = __eq__ = __bool__ = trap("list")

class HostileDict(dict):
    items = values = keys = get = __iter__ = __len__ = __getitem__ = __eq__ = __bool__ = trap("dict")

class LazyModule(types.ModuleType):
    __getattr__ = trap("lazy module")

class Weights(torch.Tensor):
    shape = property(trap("shape"))
    numel = stride = storage_offset = element_size = is_floating_point = trap("tensor method")

class HostileModule(nn.Module):
    parameters = named_parameters = named_buffers = buffers = children = named_modules = trap("module")
    __len__ = __iter__ = __bool__ = __repr__ = __eq__ = trap("module dunder")
    __hash__ = trap("module hash")
    def forward(self, x):
        return x * 2

class HostileError(Exception):
    __str__ = __repr__ = __getattr__ = trap("error")

config = Config(lr=0.1)
everything = type("Everything", (), {**traps, "__class__": property(lying)})()
HostileClass = Meta("HostileClass", (), {})
proxy = HostileClass.__new__(HostileClass) if False else object.__new__(HostileClass)
hostile_list, hostile_dict = HostileList([torch.ones(1), nn.Linear(1, 1)]), HostileDict(best=torch.ones(1))
best_weights = target = hostile_dict
lazy = LazyModule("lazy")
lazy.__dict__["__file__"] = __file__
sys.modules["hostile_lazy"] = lazy
sys.modules["hostile_thing"] = everything
sys.modules["hostile_class"] = HostileClass
for number, odd in enumerate((None, 7, "text", [], {}, everything, HostileClass)):
    sys.modules[f"hostile_{number}"] = odd
for number, path in enumerate((7, b"path", everything, HostileClass)):
    sys.modules[f"hostile_file_{number}"] = types.ModuleType(f"hostile_file_{number}")
    sys.modules[f"hostile_file_{number}"].__dict__["__file__"] = path
pretender = type("Pretender", (), {**traps, "__class__": property(lambda self: torch.Tensor)})()
module = HostileModule()
weights = torch.ones(2).as_subclass(Weights)
"""
BROKEN = {
    "saved result": ("h = torch.exp(layer(x))  # saved\nh += 1  # written\nh.sum().backward()", "TS101"),
    "dropout layer": (
        "act = nn.Dropout(0.5, inplace=True)\nh = torch.exp(layer(x))\ny = act(h)  # written\ny.sum().backward()",
        "TS101",
    ),
    "leaf": ("w = torch.ones(2, requires_grad=True)\nw += 1  # written", "TS102"),
    "through .data": (
        "h = torch.exp(layer(x))  # saved\nh.data.mul_(2)  # written\nh.sum().backward()",
        "TS201",
    ),
    "a step too early": (
        "opt = torch.optim.SGD(layer.parameters(), lr=1.0)\nh = layer(layer(x)).sum()\nlayer(x).sum().backward()\n"
        "opt.step()\nh.backward()",
        "TS105",
    ),
}
CLEAN = """
opt = torch.optim.SGD([*layer.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)
for _ in range(5):
    opt.zero_grad()
    loss = layer(x).relu_().sum()
    loss.backward()
    opt.step()
    state = layer.state_dict()
    buffer = torch.zeros(4)
    buffer[0] = 1
    buffer.add_(1)
    weights.mul_(1)
    layer.load_state_dict(state)
torch.detach(x)
nn.ReLU(torch.ones(3))
"""
INSIDE = """
def work(first, second, **more):
    self = first
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
{body}
work({first}, {second}, owner={third})
"""
THINGS = [
    "everything",
    "pretender",
    "proxy",
    "HostileClass",
    "hostile_list",
    "hostile_dict",
    "lazy",
    "module",
    "weights",
    "config",
]


def _indent(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines())


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_program_among_hostile_objects_is_still_found(case, sensor, watch_program):
    body, code = BROKEN[case]
    watched = watch_program(
        HOSTILE + INSIDE.format(body=_indent(body), first="everything", second="proxy", third="lazy")
    )
    assert watched.report.notes == []
    assert code in watched.codes
    assert _touched() == []
    if "# written" in body:
        assert watched.lines("mutated") == watched.marked("written")


def test_no_question_reaches_the_programs_objects(sensor, watch_program):
    """Each pair of things takes its turn as `self`, argument and keyword of functions that train and fail."""
    draw = random.Random(0)
    pairs = list(itertools.product(THINGS, THINGS))
    draw.shuffle(pairs)
    bodies = [CLEAN, *(body for body, _ in BROKEN.values())]
    for number, (first, second) in enumerate(pairs[:24]):
        body = bodies[number % len(bodies)]
        third = draw.choice(THINGS)
        program = HOSTILE + INSIDE.format(body=_indent(body), first=first, second=second, third=third)
        watched = watch_program(program, f"program{number}.py")
        assert watched.report.notes == [], (first, second)
        assert _touched() == [], (first, second, third)
        assert (body is CLEAN) == (watched.report.alarms == []), (first, second, watched.codes)
        if body is CLEAN:
            assert watched.error is None, repr(watched.error)


def _forget_odd_modules() -> None:
    for key in [key for key in sys.modules if key.startswith("hostile_")]:
        sys.modules.pop(key, None)


def _touched() -> list[str]:
    """What the last program's objects were asked."""
    lazy = sys.modules["hostile_lazy"]
    _forget_odd_modules()
    getter = objects.class_members(type(lazy))["__getattr__"]
    touched: list[str] = getter.__globals__["touched"]
    return list(touched)


CALLS = [
    *("torch.relu_(T)", "x.add_(T)", "x.add_(1, alpha=T)", "x[T] = 1", "x[0] = T", "torch.add(x, 1, out=T)"),
    *("torch._foreach_add_([x, T], 1)", "nn.init.zeros_(T)", "x.set_(T)", "torch.ops.aten.mul_(T, 2)"),
    *("torch.ops.aten.add.out(x, x, out=T)", "torch.ops.aten.mul_(x, T)", "torch.optim.SGD([T], lr=0.1)"),
    *("nn.ReLU(inplace=T)", "nn.ReLU(inplace=T)(x)", "F.relu(x, inplace=T)", "F.dropout(x, T, inplace=True)"),
    *("torch.from_numpy(T)", "torch.as_tensor(T)", "torch.batch_norm(x, T, T, T, T, T, T, T, T)", "x.detach_(T)"),
    *("x.copy_(T)", "layer.load_state_dict(T)", "torch.autograd.backward(T)", "x.backward(T)", "nn.Dropout(T)"),
    *("x.numpy(force=T)", "torch.utils.checkpoint.checkpoint(T, x, use_reentrant=False)", "x.register_hook(T)"),
]
SETTINGS = ["x += T", "x.data = T", "x.real = T", "layer.weight = T", "x.grad = T", "x.requires_grad = T"]


def _outcome(code: types.CodeType, names: dict[str, object], thing: str) -> tuple[str, list[str]]:
    """How a statement ends when it is given a thing, and what it asked of the program's objects."""
    import torch

    touched: list[str] = names["touched"]  # type: ignore[assignment]
    touched.clear()
    here = dict(names, x=torch.ones(2, 4), layer=torch.nn.Linear(4, 4), T=names[thing], F=torch.nn.functional)
    try:
        exec(code, here)
    except BaseException as error:  # whatever it is, it must be the same with us
        return type(error).__name__, list(touched)
    return "", list(touched)


def test_a_hostile_argument_gets_the_same_answer(sensor, tmp_path):
    """Every statement that writes, handed every hostile thing: it ends the same way, and nobody else asks anything."""
    path = tmp_path / "program.py"
    names: dict[str, object] = {"__file__": str(path), "__name__": "program"}
    exec(compile(HOSTILE, str(path), "exec"), names)
    things = [thing for thing in THINGS if thing != "module"]
    codes = {call: compile(call, str(path), "exec") for call in [*CALLS, *SETTINGS]}
    cases = [(call, thing) for call in codes for thing in things]
    for call, thing in cases:
        _outcome(codes[call], names, thing)  # what torch only asks the first time
    plain = {case: _outcome(codes[case[0]], names, case[1]) for case in cases}
    with torchsan.watch() as report:
        watched = {case: _outcome(codes[case[0]], names, case[1]) for case in cases}
    assert report.notes == []
    assert watched == plain
    assert sum(bool(name) for name, _ in plain.values()) > 100
    _forget_odd_modules()


def test_exceptions_of_the_users_own_pass_through(watch_program):
    watched = watch_program(
        HOSTILE + "layer = nn.Linear(2, 2)\nh = layer(torch.ones(2))\n"
        "def hook(g):\n    raise HostileError('x')\nh.register_hook(hook)\nh.sum().backward()\n"
    )
    assert type(watched.error).__name__ == "HostileError"
    assert _touched() == ["error"]  # by torch's engine, once, as it does without us
    assert watched.report.notes == []


def test_all_objects_are_looked_through_and_none_is_asked(sensor, watch_program):
    """An error about a gradient makes us look for its owner among everything there is."""
    watched = watch_program(
        HOSTILE
        + "instance = object.__new__(HostileClass)\nw = torch.randn(3, requires_grad=True)\n(w * 2).sum().backward()\n"
        "z = torch.randn(3, requires_grad=True)\nout = (w.grad * z).sum()\n(w * 3).sum().backward()\nout.backward()\n"
    )
    assert type(watched.error) is RuntimeError
    assert _touched() == []
    assert watched.report.notes == []
    assert watched.codes == ["TS101"]


def test_classes_of_values_are_compared_by_identity():
    """`type(value) in kinds` and `type(value) == kind` call the `__eq__` of a metaclass."""
    files = sorted(Path(objects.__file__).parent.rglob("*.py"))
    assert len(files) > 50
    asking = [
        f"{path.name}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Call)
        and isinstance(node.left.func, ast.Name)
        and node.left.func.id == "type"
        and not all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
    ]
    assert asking == []


def test_modes_of_the_program_do_not_see_our_own_ops():
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.ops: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ops.append(str(func))
            return func(*args, **(kwargs or {}))

    def train() -> list[str]:
        layer = torch.nn.Linear(3, 3)
        opt = torch.optim.SGD(layer.parameters(), lr=0.1)
        with Count() as mode:
            for _ in range(3):
                h = torch.exp(layer(torch.ones(2, 3)))
                h.data.mul_(1)
                h.sum().backward()
                opt.step()
        return mode.ops

    plain = train()
    with torchsan.watch():
        watched = train()
    assert watched == plain


def test_stepping_aside_is_said_in_the_summary_and_fails_a_strict_run(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nimport torchsan.observe.sensors.writes as w\n"
        "def broken(*a, **k):\n    raise ZeroDivisionError('on purpose')\n"
        "w.memory_of = broken\nx = torch.ones(3)\nx += 1\n"
    )
    command = [sys.executable, "-m", "torchsan", "run", "--strict", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no findings, but the recorder stepped aside early" in done.stderr


def test_attributes_are_read_without_asking():
    class Odd:
        __dict__ = property(lambda self: 1 / 0)

        def __getattribute__(self, name):
            raise SystemError(name)

    odd = Odd()
    assert objects.attributes_of(odd) == {}
    module = types.ModuleType("m")
    module.here = 3
    assert objects.attributes_of(module)["here"] == 3
    assert objects.items_of({"a": 1, (1, 2): 2}) == [("['a']", 1)]
    assert objects.items_of((5,)) == [("[0]", 5)]

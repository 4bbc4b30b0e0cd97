"""Programs full of objects that answer for themselves: none of them may be called by us, nor hide a finding."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import types

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
THINGS = ["everything", "proxy", "HostileClass", "hostile_list", "hostile_dict", "lazy", "module", "weights", "config"]


def _indent(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines())


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_program_among_hostile_objects_is_still_found(case, watch_program):
    body, code = BROKEN[case]
    watched = watch_program(
        HOSTILE + INSIDE.format(body=_indent(body), first="everything", second="proxy", third="lazy")
    )
    assert watched.report.notes == []
    assert code in watched.codes
    assert _touched() == []
    if "# written" in body:
        assert watched.lines("mutated") == watched.marked("written")


def test_no_question_reaches_the_programs_objects(watch_program):
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


def _touched() -> list[str]:
    """What the last program's objects were asked."""
    lazy = sys.modules["hostile_lazy"]
    for key in ("hostile_lazy", "hostile_thing", "hostile_class"):
        sys.modules.pop(key, None)
    getter = objects.class_members(type(lazy))["__getattr__"]
    touched: list[str] = getter.__globals__["touched"]
    return list(touched)


def test_exceptions_of_the_users_own_pass_through(watch_program):
    watched = watch_program(
        HOSTILE + "layer = nn.Linear(2, 2)\nh = layer(torch.ones(2))\n"
        "def hook(g):\n    raise HostileError('x')\nh.register_hook(hook)\nh.sum().backward()\n"
    )
    assert type(watched.error).__name__ == "HostileError"
    assert _touched() == ["error"]  # by torch's engine, once, as it does without us
    assert watched.report.notes == []


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

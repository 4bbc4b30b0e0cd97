"""Values that are reached in roundabout ways: arguments without a type, parts given by default, modules by other names."""

from __future__ import annotations

import pytest
from tests.check.test_tree import _forget_trees, found, tree

__all__ = ["_forget_trees"]
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
ARGUMENTS = {
    "used later by a function": "    x /= self.heat\n    return F.log_softmax(x, dim=1)\n",
    "asked for its size": "    x -= self.heat\n    return x.reshape(x.size(0), -1)\n",
    "moved": "    x *= self.heat\n    y = x.to(self.device)\n    return y.sum()\n",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_is_used_as_a_tensor_is_one(tmp_path, name):
    body = ARGUMENTS[name].replace("\n    ", "\n        ")
    module = f"{HEAD}import numpy as np\n\n\nclass Scale:\n    def scaled(self, x):\n    {body}"
    caller = "def run(scale, x):\n    y = scale.scaled(x)\n    return x + y\n"
    tree(tmp_path, module=module, caller=caller)
    assert found(tmp_path, "module") == [("TS204", 9)]


BLOCKS = """
from collections import OrderedDict

from torch import nn

RELU = "relu"


def activation(name: str, **options):
    known = {RELU: nn.ReLU, "tanh": nn.Tanh}
    given = {}
    if "inplace" in options and name in {RELU, "elu"}:
        given["inplace"] = options["inplace"]
    return known[name.lower()](**given)


def normed(channels, act=RELU, inplace=True):
    return nn.Sequential(OrderedDict([("norm", nn.BatchNorm2d(channels)), (act, activation(act, inplace=inplace))]))
"""


def test_a_part_that_is_handed_in_by_default_is_what_the_default_makes(tmp_path):
    net = f"""{HEAD}from .blocks import normed


class Net(nn.Module):
    def __init__(self, channels: int, block=normed):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
        self.norm = block(channels)
        self.drop = nn.Dropout2d(0.1, inplace=True)

    def forward(self, x):
        x = self.norm(self.conv(x))
        x = self.drop(x)
        return x
"""
    tree(tmp_path, blocks=BLOCKS, net=net)
    assert found(tmp_path, "net") == [("TS101", 16)]


def test_elements_of_a_list_of_layers_have_parameters(check):
    text = f"""{HEAD}
class Detect(nn.Module):
    def __init__(self, channels=(1, 2)):
        super().__init__()
        self.m = nn.ModuleList(nn.Conv2d(c, 3, 1) for c in channels)
        self.strides = [8, 16]

    def reset_parameters(self):
        for layer, stride in zip(self.m, self.strides):
            b = layer.bias.view(3, -1)
            b[:, 0] += 1.0
"""
    assert [(f.code, f.primary.line) for f in check(text)] == [("TS103", 14)]


def test_what_is_handed_out_by_key_is_differentiated(check):
    text = f"""{HEAD}
def decoded(net, ends, mode=""):
    ends["scores" + mode] = net[:, :, 0:2]
    return ends


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 1)

    def forward(self, x, ends):
        net = F.relu(self.conv(x))
        net += x
        ends = decoded(net, ends, mode="opt")
        return ends
"""
    assert [(f.code, f.primary.line) for f in check(text)] == [("TS101", 17)]


def test_a_module_by_another_name_that_another_method_makes(check):
    text = f"""{HEAD}
class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.zeros(4, 4))


class Trainer:
    def __init__(self):
        self.net = None

    def build(self):
        self.net = Factors().to("cpu")

    def train(self, rows):
        model = self.net
        for row, values in enumerate(rows):
            model.p[row] = values
"""
    assert [(f.code, f.primary.line) for f in check(text, possible=True)] == [("TS103", 21)]

"""`fix --memory`: what helps is told with its bytes, what does not is said to be folklore, what breaks is refused."""

from __future__ import annotations

import gc

import pytest

from torchsan.errors import UsageError
from torchsan.fix.saving.trying import Saver

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = nn.ReLU()

    def forward(self, x):
        h = self.act(self.up(x))
        h = F.silu(h)
        return x + self.down(h.clone())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(32) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    out = net(torch.randn(64, 32))
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class Clean:
    """Other trials of this process leave nothing behind that would be measured."""

    def __init__(self, lab):
        self.lab = lab

    @property
    def runs(self):
        return self.lab.runs

    def run(self, changed, mode):
        gc.collect()
        return self.lab.run(changed, mode)


@pytest.fixture
def save(lab, tmp_path):
    def run(source):
        path = tmp_path / "program.py"
        path.write_text(source.lstrip("\n"))
        saver = Saver(Clean(lab(path, 20)))
        return saver, saver.run()

    return run


def test_advice_is_tried_and_measured(save):
    saver, table = save(PROGRAM)
    rows = {(row.advice, row.outcome): row for row in table.edits}
    # x 64x32, relu's and silu's values 64x128, three times; the blocks' inputs are all that a checkpoint needs.
    checkpoint = next(row for row in table.edits if row.title.startswith("checkpoint `block(x)`"))
    assert checkpoint.outcome == "helps"
    assert checkpoint.kept_bytes < -0.5 * table.kept_bytes
    # Two layers with weight and bias in each of three blocks, over four passes.
    assert "48 gradients" in checkpoint.why
    copies = rows["remove copies", "helps"]
    # The result of silu and its copy, of which one is enough: 64 x 128 floats in each of three blocks.
    assert copies.kept_bytes == 0
    assert copies.peak_bytes < 0
    layer = next(row for row in table.edits if row.title.startswith("`nn.ReLU()` in place"))
    assert layer.outcome == "folklore"
    assert layer.kept_bytes == 0
    refused = rows["in place", "refused"]
    assert "F.silu" in refused.title
    assert "modified by an inplace operation" in refused.why
    [changed] = saver.changed.values()
    assert "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)" in changed.text
    assert "clone" not in changed.text


def test_a_fault_is_to_be_mended_first(save):
    with pytest.raises(UsageError, match="the program fails"):
        save("import torch\nx = torch.ones(2, requires_grad=True)\ny = x.exp()\ny += 1\ny.sum().backward()\n")


def test_a_program_without_backward(save):
    with pytest.raises(UsageError, match="no backward pass"):
        save("import torch\ntorch.ones(2).exp()\n")


SMALL_VIEW = """
import torch

torch.manual_seed(0)
body, head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)
tokens = [torch.randn(64, 128, 16) for _ in range(4)]
for step in range(4):
    loss = head((body(tokens[step]) + 1.0)[:, 0]).pow(2).mean()
    loss.backward(retain_graph=True)
"""


def test_what_the_run_has_noted_is_tried_as_well(save):
    saver, table = save(SMALL_VIEW)
    rows = {row.advice: row for row in table.edits if row.outcome != "refused"}
    copied = rows["copy small views"]
    assert copied.outcome == "helps"
    # 64 x 128 x 16 floats were kept for 64 x 16 of them.
    assert copied.kept_bytes == -4 * 64 * 127 * 16
    assert rows["let graphs go"].kept_bytes == 0
    [changed] = saver.changed.values()
    assert "[:, 0].clone()" in changed.text


LAYOUTS = """
import torch

torch.manual_seed(0)
first, second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 1)
for step in range(4):
    h = torch.relu(first(torch.randn(16, 40, 32)))
    loss = second(h.transpose(0, 1).contiguous()).mean()
    loss = loss + h.transpose(1, 2).contiguous().view(16, -1).pow(2).mean()
    loss.backward()
"""


def test_whether_a_layout_is_needed_is_found_by_running(save):
    saver, table = save(LAYOUTS)
    tried = {row.title.rpartition("line ")[2]: row for row in table.edits if row.advice == "remove copies"}
    refused = tried["8"]
    assert refused.outcome == "refused"
    assert "view size is not compatible" in refused.why
    assert tried["7"].outcome in ("helps", "folklore")
    assert all(".contiguous().view(16, -1)" in source.text for source in saver.changed.values())

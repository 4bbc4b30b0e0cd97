"""What is right for all that the source tells is no finding by default; the twin that leaves no such doubt is one."""

from __future__ import annotations

import textwrap

import pytest
from tests.check.test_tree import _forget_trees, found, tree

__all__ = ["_forget_trees"]
HEAD = "import torch\nfrom torch import nn\n"
MLP = """
class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = []
        for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
            layers.append(nn.Linear(a, b))
            {layer}
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        h = self.net(x)
        h += 1
        return h
"""
ROUNDS = """
class Net(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.fcs = nn.ModuleList([nn.Linear(4, 4) for _ in range(count)])

    def forward(self, x):
        for i, fc in enumerate(self.fcs):
            x = fc(x)
            {act}
        x += 1
        return x
"""
BANK = """
class Block(nn.Module):
    def __init__(self, width, act):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.act = act

    def forward(self, x):
        x = self.fc(x)
        if self.act is not None:
            x = self.act(x)
        return x


class Net(nn.Module):
    def __init__(self, widths):
        super().__init__()
        acts = [nn.ReLU()] * (len(widths) - 1)
        {last}
        blocks = []
        for width, act in zip([4] + widths[:-1], acts):
            blocks.append(Block(width, act))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        h = x
        for block in self.blocks:
            h = block(h)
        h += x
        return h
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (MLP.format(layer="layers.append(nn.Tanh())"), True),
        (MLP.format(layer="if i != len(sizes) - 2:\n                layers.append(nn.Tanh())"), False),
        (ROUNDS.format(act="x = torch.tanh(x)"), True),
        (ROUNDS.format(act="if i < len(self.fcs) - 1:\n                x = torch.tanh(x)"), False),
        (ROUNDS.format(act="if i % 2:\n                x = torch.tanh(x)\n                x += 2"), True),
        (BANK.format(last="acts += [nn.ReLU()]"), True),
        (BANK.format(last="acts += [None]"), False),
    ],
)
def test_the_last_item_of_a_loop_may_be_another(check, program, told):
    assert ("TS101" in {f.code for f in check(HEAD + textwrap.dedent(program))}) is told


@pytest.mark.parametrize(("write", "told"), [("half.set_()", False), ("half.zero_()", True)])
def test_other_memory_for_a_view_is_no_write(tmp_path, write, told):
    text = f'''
def halves(x: torch.Tensor) -> torch.Tensor:
    """Take the first half.

    Args:
        x: rows
    """
    half = x[:2]
    total = half + 1
    {write}
    return total
'''
    tree(tmp_path, halves=HEAD + text)
    assert ("TS204" in {code for code, _ in found(tmp_path, "halves")}) is told


SCALED = '''
{decorator}
def doubled(rows: torch.Tensor, size: float):
    """Double the first column.

    Args:
        rows: four numbers each
    """
    {remark}
    rows[:, 0] *= size
    return rows.sum()
'''


@pytest.mark.parametrize(
    ("decorator", "remark", "told"),
    [
        ("", "", True),
        ("@MODELS.register_module()", "", False),
        ("@register_checkpoint_hooks", "", True),
        ("", "# NOTE: rows are scaled in-place", False),
    ],
)
def test_who_says_so_or_is_asked_for_by_name(tmp_path, decorator, remark, told):
    tree(tmp_path, scale=HEAD + "from .models import MODELS\n" + SCALED.format(decorator=decorator, remark=remark))
    assert ("TS204" in {code for code, _ in found(tmp_path, "scale")}) is told


@pytest.mark.parametrize(("words", "told"), [("Take the next block.", True), ("Updates the given table.", False)])
def test_what_the_helper_that_writes_says_of_itself(tmp_path, words, told):
    text = f'''
def taken(table: torch.Tensor, place: int):
    """Take a block.

    Args:
        table: blocks
    """
    return _next(table, place) + 1


def _next(table, place):
    """{words}"""
    table[place, 0] = 3
    return table[place, 1]
'''
    tree(tmp_path, blocks=HEAD + text)
    assert ("TS204" in {code for code, _ in found(tmp_path, "blocks")}) is told


@pytest.mark.parametrize(("low", "told"), [("low", False), ("low: torch.Tensor", True)])
def test_a_number_to_which_a_tensor_is_added_was_no_tensor(tmp_path, low, told):
    text = f"""
def bounds({low}, high: torch.Tensor):
    low *= torch.ones_like(high)
    return torch.max(low.to(high.device), high)
"""
    use = "from .bounds import bounds\n\n\ndef use(low, high):\n    top = bounds(low, high)\n    return top, low\n"
    tree(tmp_path, bounds=HEAD + text, use=use)
    assert ("TS204" in {code for code, _ in found(tmp_path, "bounds")}) is told


@pytest.mark.parametrize(("asked", "told"), [("isinstance(batch[key], list)", False), ("key is None", True)])
def test_what_holds_lists_is_no_tensor(check, asked, told):
    program = f"""
class Classes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch, key):
        several = {asked}
        c = self.fc(batch)
        batch[key] = c if several else c + 1
        return batch
"""
    assert ("TS101" in {f.code for f in check(HEAD + program, possible=True)}) is told


@pytest.mark.parametrize(("between", "told"), [("restored(net)", False), ("print(net)", True)])
def test_a_state_that_was_reset_is_no_graph_of_before(check, between, told):
    program = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        kept[0] = self.fc(x + kept[0])
        return kept[0]


def restored(net):
    reset_states(net)


kept = [torch.zeros(4)]
net = Net()
for _ in range(3):
    {between}
    net(torch.randn(4)).sum().backward()
"""
    program = program.replace("def restored(net):", "from states import reset_states\n\n\ndef restored(net):")
    assert ("TS111" in {f.code for f in check(HEAD + program)}) is told


@pytest.mark.parametrize(("head", "told"), [("with torch.no_grad():", False), ("if True:", True)])
def test_a_method_that_is_called_without_gradients_below_forward(tmp_path, head, told):
    net = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.features_of(x)

    def features_of(self, x):
        h = torch.tanh(self.fc(x))
        h += 1
        return h
"""
    use = f"import torch\n\n\ndef use(net, x):\n    {head}\n        return net.features_of(x)\n"
    tree(tmp_path, net=HEAD + net, use=use)
    assert ("TS101" in {code for code, _ in found(tmp_path, "net")}) is told

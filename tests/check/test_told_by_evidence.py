"""What a finding hangs on: the rounds of a loop, the arguments of an object, what callers hand over and what they do."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from torchsan.check.runner import check_files

HEAD = """
import copy
import torch
from torch import nn, optim
import torch.nn.functional as F
"""
SILENT = {
    "the last round comes after the one that is kept": """
        class Net(nn.Module):
            def __init__(self, layers):
                super().__init__()
                self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(layers)])
            def forward(self, x, scale):
                early = None
                for i in range(len(self.blocks)):
                    x = self.blocks[i](x)
                    if i == 3:
                        early = x
                x -= self.blocks[0].weight[0, 0] * early
                return x
    """,
    "only the first round is the identity": """
        class Fuse(nn.Module):
            def __init__(self, branches):
                super().__init__()
                self.parts = nn.ModuleList()
                for i in range(branches):
                    self.parts.append(nn.Sequential() if i == 0 else nn.Linear(4, 4))
                self.first = nn.Linear(4, 4)
                self.act = nn.ReLU(inplace=True)
            def forward(self, x):
                x = F.relu(self.first(x))
                for i in range(len(self.parts)):
                    y = self.parts[0](x) if i == 0 else y + self.parts[i](x)
                y += 1
                return y
    """,
    "an activation that this object was told to do without": """
        class Conv(nn.Module):
            def __init__(self, relu=True):
                super().__init__()
                self.conv = nn.Conv2d(3, 3, 1)
                self.relu = None
                if relu:
                    self.relu = nn.ReLU()
            def forward(self, x):
                x = self.conv(x)
                if self.relu is not None:
                    x = self.relu(x)
                return x
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.last = Conv(relu=False)
            def forward(self, x):
                out = self.last(x)
                out += x
                return out
    """,
    "a deep copy of a dictionary that a call makes": """
        model = nn.Linear(3, 1)
        opt = optim.SGD(model.parameters(), lr=0.1)
        first = copy.deepcopy(dict(model=model.state_dict(), rate=0.1))
        for _ in range(3):
            opt.zero_grad()
            model(torch.ones(2, 3)).pow(2).mean().backward()
            opt.step()
        model.load_state_dict(first["model"])
    """,
    "a copy of the best": """
        def fit(x, y):
            w = torch.zeros(3, requires_grad=True)
            opt = optim.Adam([w], lr=0.1)
            best, best_loss = None, 1e9
            for _ in range(9):
                opt.zero_grad()
                loss = ((x @ w - y) ** 2).mean()
                loss.backward()
                opt.step()
                if loss.item() < best_loss:
                    best_loss = loss.item()
                    best = w.detach().clone()
            return best
    """,
}
FOUND = {
    "the best is the live weight": """
        def fit(x, y):
            w = torch.zeros(3, requires_grad=True)
            opt = optim.Adam([w], lr=0.1)
            best, best_loss = None, 1e9
            for _ in range(9):
                opt.zero_grad()
                loss = ((x @ w - y) ** 2).mean()
                loss.backward()
                opt.step()
                if loss.item() < best_loss:
                    best_loss = loss.item()
                    best = w.detach()  # <- TS203
            return best
    """,
    "every round but the first adds in place": """
        class Sum(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.parts = nn.ModuleList([nn.Linear(4, 4) for _ in range(n)])
            def forward(self, x):
                for i, part in enumerate(self.parts):
                    if i == 0:
                        y = torch.sigmoid(part(x))
                    else:
                        y += part(x)  # <- TS101
                return y
    """,
}


@pytest.mark.parametrize("name", SILENT)
def test_silent(name, check):
    assert check(HEAD + textwrap.dedent(SILENT[name])) == []


@pytest.mark.parametrize("name", FOUND)
def test_found_at_its_line(name, found_at_its_line):
    found_at_its_line(FOUND[name])


def told(folder: Path, writer: str, caller: str) -> list[str]:
    """What is told of a helper at default level when a file beside it uses it."""
    package = folder / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helpers.py").write_text(textwrap.dedent(writer).lstrip("\n"))
    (package / "uses.py").write_text(textwrap.dedent(caller).lstrip("\n"))
    results = check_files([str(package / "helpers.py")], jobs=1, cache_folder=None)
    return [f.code for r in results for f in r.findings if f.certainty != "possible"]


STATE = """
    import torch
    def smooth(grad, average, beta=0.9):
        average.lerp_(grad, 1 - beta)
        return grad / average.sqrt()
"""


def test_a_state_that_an_optimizer_keeps(tmp_path):
    caller = """
        from torch.optim import Optimizer
        from .helpers import smooth
        class Own(Optimizer):
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        update = smooth(p.grad, state["average"])
                        p.data.add_(update)
    """
    assert told(tmp_path, STATE, caller) == []


SEEN = """
    import torch
    def scaled(states):
        states /= states.norm(dim=-1, keepdim=True)
        return states.sum(-1)
"""
READS = """
    from .helpers import scaled
    def act(net, states):
        size = scaled(states)
        return net(states) * size
"""


def test_what_an_agent_has_seen_is_no_state_to_be_brought_up_to_date(tmp_path):
    assert told(tmp_path, SEEN, READS) == ["TS204"]


def test_a_workspace_by_its_documentation(tmp_path):
    writer = '''
        import torch
        def sweep(costs: torch.Tensor, alphas: torch.Tensor):
            """Sweep.

            Args:
                costs: What each step costs.
                alphas: Working space memory for the sums.
            """
            alphas[0] = 0
            for i in range(1, len(costs)):
                alphas[i] = alphas[i - 1] + costs[i]
            return alphas[-1]
    '''
    caller = """
        from .helpers import sweep
        def both(costs, alphas):
            total = sweep(costs, alphas)
            return total, alphas
    """
    assert told(tmp_path, writer, caller) == []


def test_what_is_put_back(tmp_path):
    writer = """
        import torch
        def best(scores: torch.Tensor, ids: torch.Tensor):
            kept = scores[ids]
            scores[:] = -float("inf")
            scores[ids] = kept
            return scores.topk(3)[1]
    """
    caller = """
        from .helpers import best
        def search(scores, ids):
            chosen = best(scores, ids)
            return scores[chosen]
    """
    assert told(tmp_path, writer, caller) == []


MASKS = """
    import torch
    from torch import nn
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(4, 4)
        def decode(self, x, mask):
            values = torch.sigmoid(self.score(x))
            values.masked_fill_(mask, 0)
            return values
"""


@pytest.mark.parametrize(("body", "expected"), [("model.eval()", []), ("model.train()", ["TS101"])])
def test_who_calls_only_to_evaluate_walks_no_graph(tmp_path, body, expected):
    caller = f"""
        def measure(model, batches):
            {body}
            return [best(model, batch) for batch in batches]
        def best(model, batch):
            return model.head.decode(batch, batch > 0)
    """
    assert told(tmp_path, MASKS, caller) == expected


OPTION = """
    import torch
    from torch import nn
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(4, 1)
        def forward(self, x, last=None):
            p = torch.softmax(self.score(x), 0)
            if last is not None:
                p[:last] = 0
            return p * x
"""


@pytest.mark.parametrize(("name", "expected"), [("infer", []), ("train_step", ["TS101"])])
def test_an_option_that_is_given_only_in_use(tmp_path, name, expected):
    caller = f"""
        from .helpers import Attention
        att = Attention()
        def {name}(x):
            return att(x, last=3)
    """
    assert told(tmp_path, OPTION, caller) == expected


MARKS = """
    import torch
    def marked(labels: torch.Tensor):
        {line}
        return labels * 2
"""
GIVES = """
    from .helpers import marked
    def go(labels):
        labels: torch.Tensor = marked(labels)
        return labels
"""


def test_a_caller_that_binds_the_result_with_a_type(tmp_path):
    assert told(tmp_path, MARKS.format(line="labels -= labels.mean()"), GIVES) == []


HANDS = """
    def loss(outputs: torch.Tensor, labels: torch.Tensor):
        \"\"\"Compare.

        Args:
            outputs: What the network said.
            labels: What is right.
        \"\"\"
        {line}
        return (outputs - labels).sum()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [("labels[labels < 0] = 0", []), ("labels[labels.isnan()] = 0", []), ("labels /= labels.max()", ["TS204"])],
)
def test_what_changes_nothing_when_done_again_needs_a_reader(tmp_path, line, expected):
    assert told(tmp_path, "    import torch\n" + HANDS.format(line=line), "") == expected


def test_an_option_kept_by_the_object_allows_the_write(check):
    program = """
        class Scale(nn.Module):
            def __init__(self, inplace=False):
                super().__init__()
                self.inplace = inplace
            def forward(self, x: torch.Tensor):
                y = x if self.inplace else x.clone()
                return y.mul_(2)
    """
    assert check(HEAD + textwrap.dedent(program)) == []


def test_a_linear_layer_keeps_the_old_memory_when_its_weight_gets_another(check):
    program = """
        def once(x):
            layer = nn.{layer}
            y = layer(x).sum()
            layer.weight.data = layer.weight.data * 0.5
            y.backward()
    """
    assert check(HEAD + textwrap.dedent(program.format(layer="Linear(3, 3)"))) == []
    assert [f.code for f in check(HEAD + textwrap.dedent(program.format(layer="Conv1d(3, 3, 1)")))] == ["TS201"]


def test_a_graph_that_all_rounds_but_the_last_keep(check):
    program = """
        net = nn.Linear(3, 1)
        loss = net(torch.ones(2, 3)).pow(2).sum()
        for i in range(5):
            loss.backward(retain_graph=True if i + 1 < 5 else False)
    """
    assert check(HEAD + textwrap.dedent(program)) == []

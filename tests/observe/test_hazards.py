"""Broken programs: the line that wrote (`# written`), that saved (`# saved`), that is to blame (`# cause`)."""

from __future__ import annotations

import pytest

SETUP = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
layer = nn.Linear(4, 4)
x = torch.randn(3, 4)
"""

LOUD = {
    "method": """
        h = torch.exp(layer(x))  # saved
        h.add_(1)  # written
        h.sum().backward()
    """,
    "augmented assignment": """
        h = torch.tanh(layer(x))  # saved
        h *= 2  # written
        h.sum().backward()
    """,
    "indexed assignment": """
        h = layer(x).sigmoid()  # saved
        h[0] = 0  # written
        h.sum().backward()
    """,
    "slice through a view": """
        h = layer(x).exp()  # saved
        part = h[:, 1:]
        part.mul_(2)  # written
        h.sum().backward()
    """,
    "view through transpose and select": """
        h = layer(x).exp()  # saved
        h.t()[1].zero_()  # written
        h.sum().backward()
    """,
    "detached alias": """
        h = layer(x).exp()  # saved
        h.detach().zero_()  # written
        h.sum().backward()
    """,
    "input of a product": """
        a = layer(x)
        b = layer(x)
        c = a * b  # saved
        b += 1  # written
        c.sum().backward()
    """,
    "function with inplace=True": """
        h = torch.sigmoid(layer(x))  # saved
        F.relu(h, inplace=True)  # written
        h.sum().backward()
    """,
    "function with an underscore": """
        h = torch.sigmoid(layer(x))  # saved
        torch.relu_(h)  # written
        h.sum().backward()
    """,
    "functional with an underscore": """
        h = torch.sigmoid(layer(x))  # saved
        F.leaky_relu_(h)  # written
        h.sum().backward()
    """,
    "layer with inplace=True": """
        act = nn.LeakyReLU(0.1, inplace=True)
        h = torch.sigmoid(layer(x))  # saved
        y = act(h)  # written
        y.sum().backward()
    """,
    "dropout with inplace=True": """
        drop = nn.Dropout(0.5, inplace=True)
        h = torch.sigmoid(layer(x))  # saved
        y = drop(h)  # written
        y.sum().backward()
    """,
    "out= argument": """
        scale = torch.ones(4)
        y = layer(x) * scale  # saved
        torch.add(scale, 1, out=scale)  # written
        y.sum().backward()
    """,
    "out= of a linear algebra function": """
        m = torch.eye(4)
        y = layer(x) @ m  # saved
        torch.linalg.inv(torch.eye(4) * 2, out=m)  # written
        y.sum().backward()
    """,
    "normalize with out=": """
        u = torch.ones(4)
        y = layer(x) * u  # saved
        F.normalize(torch.randn(4), dim=0, out=u)  # written
        y.sum().backward()
    """,
    "copy_ under no_grad": """
        scale = torch.ones(4)
        y = layer(x) * scale  # saved
        with torch.no_grad():
            scale.copy_(torch.zeros(4))  # written
        y.sum().backward()
    """,
    "foreach": """
        scale = torch.ones(4)
        y = layer(x) * scale  # saved
        torch._foreach_add_([scale], 1.0)  # written
        y.sum().backward()
    """,
    "embedding renormalisation": """
        table = nn.Embedding(5, 4, max_norm=0.5)
        second = (table.weight @ x.t().requires_grad_()).sum()  # saved
        table(torch.tensor([0, 1, 2]))  # written
        second.backward()
    """,
    "masked fill in place": """
        scores = torch.softmax(layer(x), -1)  # saved
        scores.masked_fill_(scores < 0.2, 0)  # written
        scores.sum().backward()
    """,
    "scatter in place": """
        h = torch.sqrt(layer(x).abs() + 1)  # saved
        h.scatter_(1, torch.zeros(3, 1, dtype=torch.long), 0.0)  # written
        h.sum().backward()
    """,
    "clamp of a parameter": """
        y = layer(torch.randn(3, 4, requires_grad=True))  # saved
        with torch.no_grad():
            for p in layer.parameters():
                p.clamp_(-0.01, 0.01)  # written
        y.sum().backward()
    """,
    "helper two calls away": """
        def inner(t):
            t += 1  # written

        def outer(t):
            inner(t)
            return t * 2

        h = torch.exp(layer(x))  # saved
        outer(h).sum().backward()
    """,
    "comprehension": """
        parts = [torch.exp(layer(x)) for _ in range(2)]  # saved
        [p.mul_(2) for p in parts]  # written
        sum(p.sum() for p in parts).backward()
    """,
    "custom function": """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                ctx.save_for_backward(t)
                return t * t

            @staticmethod
            def backward(ctx, g):
                (t,) = ctx.saved_tensors
                return 2 * g * t

        h = layer(x)
        y = Square.apply(h)  # saved
        h.add_(1)  # written
        y.sum().backward()
    """,
    "double backward": """
        w = torch.randn(3, requires_grad=True)
        y = (w ** 3).sum()
        (g,) = torch.autograd.grad(y, w, create_graph=True)  # saved
        with torch.no_grad():
            w += 1  # written
        g.sum().backward()
    """,
    "optimizer between forward and backward": """
        opt = torch.optim.Adam(layer.parameters())
        y = layer(torch.randn(3, 4, requires_grad=True))  # saved
        layer(x).sum().backward()
        opt.step()  # written
        y.sum().backward()
    """,
    "foreach optimizer": """
        opt = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=True)
        y = layer(torch.randn(3, 4, requires_grad=True))  # saved
        layer(x).sum().backward()
        opt.step()  # written
        y.sum().backward()
    """,
    "exponential average of a teacher": """
        teacher = nn.Linear(4, 4)
        inputs = torch.randn(3, 4, requires_grad=True)
        loss = (layer(inputs) - teacher(inputs)).pow(2).mean()  # saved
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), layer.parameters()):
                t.mul_(0.9).add_(s, alpha=0.1)  # written
        loss.backward()
    """,
    "user's own optimizer class": """
        class Plain(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.sub_(p.grad)  # written

        opt = Plain(layer.parameters())
        y = layer(torch.randn(3, 4, requires_grad=True))  # saved
        layer(x).sum().backward()
        opt.step()
        y.sum().backward()
    """,
    "complex numbers": """
        z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
        h = torch.exp(z)  # saved
        h += 1  # written
        h.abs().sum().backward()
    """,
    "resize of a saved value": """
        h = torch.ones(4)
        y = layer(x) * h  # saved
        h.resize_(2)  # written
        y.sum().backward()
    """,
    "non-ascii source": """
        été = torch.exp(layer(x))  # saved
        été += 1; été.sum()  # written
        été.sum().backward()
    """,
}

SILENT = {
    "data": """
        h = torch.exp(layer(x))  # saved
        h.data.mul_(2)  # written
        h.sum().backward()
    """,
    "data of a weight": """
        y = layer(torch.randn(3, 4, requires_grad=True))  # saved
        layer.weight.data.fill_(0.5)  # written
        y.sum().backward()
    """,
    "slice of data": """
        h = torch.exp(layer(x))  # saved
        h.data[1] = 0  # written
        h.sum().backward()
    """,
    "data setter": """
        y = torch.randn(4, 4, requires_grad=True) * layer.weight  # saved
        layer.weight.data = torch.zeros(4, 4)  # written
        y.sum().backward()
    """,
    "numpy after the save": """
        h = torch.ones(4)
        y = layer(x) * h  # saved
        a = h.numpy()
        a[0] = 5.0  # written
        y.sum().backward()
    """,
    "from_numpy before the save": """
        import numpy as np
        buffer = np.ones((3, 4), dtype=np.float32)
        batch = torch.from_numpy(buffer)
        y = layer(batch)  # saved
        buffer[:] = 7.0  # written
        y.sum().backward()
    """,
    "array protocol": """
        import numpy as np
        h = torch.ones(4)
        y = layer(x) * h  # saved
        a = np.asarray(h)
        a += 1  # written
        y.sum().backward()
    """,
    "numpy in a helper": """
        def centred(values):
            values -= values.mean()  # written
            return values

        h = torch.ones(4)
        h[0] = 2
        y = layer(x) * h  # saved
        picture = h.numpy()
        centred(picture + 0)
        centred(picture)
        y.sum().backward()
    """,
    "numpy functions with out": """
        import numpy as np
        h = torch.ones(4)
        y = layer(x) * h  # saved
        a = h.numpy()
        np.multiply(a, 2, out=a)  # written
        y.sum().backward()
    """,
    "dlpack": """
        import numpy as np
        h = torch.ones(4)
        y = layer(x) * h  # saved
        a = torch.from_dlpack(h)  # written
        np.asarray(a)[:] = 3
        y.sum().backward()
    """,
    "storage": """
        h = torch.ones(4)
        y = layer(x) * h  # saved
        s = h.untyped_storage()
        s[0] = 7  # written
        y.sum().backward()
    """,
    "fused optimizer": """
        opt = torch.optim.Adam(layer.parameters(), fused=True)
        y = layer(torch.randn(3, 4, requires_grad=True))  # saved
        layer(x).sum().backward()
        opt.step()  # written
        y.sum().backward()
    """,
    "batch norm statistics": """
        norm = nn.BatchNorm1d(4)
        norm.eval()
        y = norm(layer(x))  # saved
        norm.train()
        norm(torch.randn(8, 4))  # written
        y.sum().backward()
    """,
}


@pytest.mark.parametrize("program", LOUD.values(), ids=LOUD.keys())
def test_saved_value_overwritten_with_an_error(program, watch_program):
    watched = watch_program(SETUP + _dedent(program))
    assert isinstance(watched.error, RuntimeError)
    _check(watched)


@pytest.mark.parametrize("program", SILENT.values(), ids=SILENT.keys())
def test_saved_value_overwritten_without_an_error(program, watch_program):
    watched = watch_program(SETUP + _dedent(program))
    assert watched.error is None
    _check(watched)


def _dedent(program: str) -> str:
    import textwrap

    return textwrap.dedent(program)


def _check(watched) -> None:
    assert not watched.report.notes
    assert watched.alarms, "nothing was found"
    assert watched.marked("written") <= watched.lines("mutated")
    assert watched.marked("saved") <= watched.lines("saved")
    assert watched.lines("mutated") <= watched.marked("written")
    assert all(finding.certainty == "proved" for finding in watched.alarms)


def test_a_layers_input_is_called_by_the_users_name(watch_program):
    program = """
        act = nn.ELU(inplace=True)
        stem = layer(x).tanh()
        mid = layer(stem)
        (act(stem) + mid).sum().backward()
    """
    watched = watch_program(SETUP + _dedent(program))
    assert "`stem` was overwritten" in watched.alarms[0].message


def test_memory_written_through_numpy_is_called_by_its_name_in_torch(watch_program):
    watched = watch_program(SETUP + _dedent(SILENT["numpy after the save"]))
    assert watched.alarms[0].message.startswith("`h`, saved by `mul`")


OVERLAPPING = {
    "two writes": """
        p = layer(x).softmax(-1).mean(0)
        rows = p.view(4, 1).expand(4, 4)
        columns = p.view(1, 4).expand(4, 4)
        rows[rows < 0.2] = 0.2  # written
        columns[columns < 0.2] = 0.2  # written
        (rows * columns).log().sum().backward()
    """,
    "only the base is used": """
        p = layer(x).mean(0, keepdim=True)
        wide = p.expand(3, 4)
        wide[wide < 0] = 0.0  # written
        p.sum().backward()
    """,
    "beside a write that is right": """
        h = layer(x) * 1
        h[0] = 0.0
        wide = h[1:2].expand(3, 4)
        wide[wide < 0] = 0.0  # written
        (wide.exp() * h.sum()).sum().backward()
    """,
}


@pytest.mark.parametrize("program", OVERLAPPING.values(), ids=OVERLAPPING.keys())
@pytest.mark.filterwarnings("ignore:Use of")
def test_an_overlap_that_only_backward_notices_is_told_by_the_line_that_wrote(program, watch_program):
    watched = watch_program(SETUP + _dedent(program))
    assert isinstance(watched.error, RuntimeError)
    assert {finding.code for finding in watched.alarms} == {"TS107"}
    assert watched.lines("mutated") == watched.marked("written")


@pytest.mark.filterwarnings("ignore:Use of")
def test_an_overlap_is_not_told_where_it_is_not_clear_who_wrote(watch_program):
    program = """
        p = layer(x).mean(0, keepdim=True)
        wide = p.expand(3, 4)
        wide[wide < 0] = 0.0
        q = layer(x) * 1
        q[0] = 0.0
        (p.sum() + q.sum()).backward()
    """
    watched = watch_program(SETUP + _dedent(program))
    assert isinstance(watched.error, RuntimeError)
    assert watched.alarms == []


def test_a_tensor_of_inference_mode_that_is_saved_is_named(watch_program):
    program = """
        @torch.inference_mode()
        def weights():
            return torch.rand(3, 4)
        def weigh(h, factor):
            return h * factor  # written
        weigh(layer(x), weights()).sum().backward()
    """
    watched = watch_program(SETUP + _dedent(program))
    assert watched.alarms[0].message.startswith("`factor` was made in inference mode")
    assert watched.lines("mutated") == watched.marked("written")

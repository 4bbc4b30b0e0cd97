"""Whole programs that write in odd ways: `torch.ops`, `out=`, fused steps, views of views, hooks."""

from __future__ import annotations

PROGRAMS = {
    "Gates scaled by an op looked up by name from a table of kernels": """\
# Gates scaled by an op looked up by name from a table of kernels.
import torch
from torch import nn

KERNELS = {"scale": torch.ops.aten.mul_.Scalar, "shift": torch.ops.aten.add.Scalar}


class KernelLayer(nn.Module):
    def __init__(self, kernel, value):
        super().__init__()
        self.kernel, self.value = kernel, value

    def forward(self, x):
        return KERNELS[self.kernel](x, self.value)  # written


class Highway(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.t, self.h, self.damp = nn.Linear(dim, dim), nn.Linear(dim, dim), KernelLayer("scale", 0.5)

    def forward(self, x):
        gate = torch.sigmoid(self.t(x))
        gate = self.damp(gate)
        return gate * torch.relu(self.h(x)) + (1 - gate) * x


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(Highway(5), Highway(5), nn.Linear(5, 1))
    opt = torch.optim.Adam(net.parameters())
    for _ in range(2):
        loss = net(torch.randn(6, 5)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
""",
    "Noisy linear layers (factorised) whose noise is redrawn by every call": """\
# Noisy linear layers (factorised) whose noise is redrawn by every call.
import torch
from torch import nn


class NoisyLinear(nn.Module):
    def __init__(self, n_in, n_out, sigma=0.1):
        super().__init__()
        self.mu = nn.Parameter(torch.randn(n_out, n_in) / n_in ** 0.5)
        self.sigma = nn.Parameter(torch.full((n_out, n_in), sigma))
        self.register_buffer("eps", torch.zeros(n_out, n_in))

    def redraw(self):
        torch.randn(self.eps.shape, out=self.eps)  # written

    def forward(self, x):
        self.redraw()
        return x @ (self.mu + self.sigma * self.eps).t()


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = NoisyLinear(4, 8), NoisyLinear(8, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


if __name__ == "__main__":
    torch.manual_seed(0)
    q = Q()
    opt = torch.optim.RMSprop(q.parameters(), lr=1e-3)
    for _ in range(2):
        obs, nxt = torch.randn(6, 4), torch.randn(6, 4)
        loss = (q(obs).amax(1) - 1 - 0.9 * q(nxt).amax(1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
""",
    "Patch dropping for a masked autoencoder, done on a rearranged view": """\
# Patch dropping for a masked autoencoder, done on a rearranged view.
import torch
from torch import nn


class PatchDrop:
    def __init__(self, count, gen):
        self.count, self.gen = count, gen

    def __call__(self, tokens):
        grid = tokens.view(len(tokens), 2, 3, -1).transpose(1, 2)
        rows = torch.randint(3, (self.count,), generator=self.gen)
        cols = torch.randint(2, (self.count,), generator=self.gen)
        grid.index_put_((torch.arange(self.count) % len(tokens), rows, cols), torch.zeros(()))  # written
        return tokens


class Mae(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.enc, self.dec = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.drop = PatchDrop(4, torch.Generator().manual_seed(0))

    def forward(self, patches):
        tokens = torch.tanh(self.enc(patches))
        return self.dec(self.drop(tokens))


if __name__ == "__main__":
    torch.manual_seed(0)
    net, patches = Mae(), torch.randn(3, 6, 4)
    opt = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        loss = nn.functional.mse_loss(net(patches), patches)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
""",
    "Two tasks on a common trunk, each with its own fused optimizer": """\
# Two tasks on a common trunk, each with its own fused optimizer.
import torch
from torch import nn


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.b(torch.relu(self.a(x))))


class Task:
    def __init__(self, trunk, n_out):
        self.trunk, self.head = trunk, nn.Linear(8, n_out)
        self.opt = torch.optim.Adam([*trunk.parameters(), *self.head.parameters()], lr=1e-1, fused=True)

    def loss(self, z, y):
        return nn.functional.mse_loss(self.head(z), y)

    def learn(self, loss, keep):
        self.opt.zero_grad()
        loss.backward(retain_graph=keep)
        grads = [p.grad.clone() for p in self.trunk.parameters()]
        self.opt.step()  # written
        return grads


def gap(a, b):
    return max((x - y).abs().max().item() for x, y in zip(a, b))


if __name__ == "__main__":
    torch.manual_seed(0)
    trunk = Trunk()
    tasks, worst = [Task(trunk, 1), Task(trunk, 2)], 0.0
    for _ in range(2):
        x = torch.randn(8, 4)
        z = trunk(x)
        losses = [t.loss(z, x[:, : t.head.out_features]) for t in tasks]
        exact = [torch.autograd.grad(l, list(trunk.parameters()), retain_graph=True) for l in losses]
        for t, loss, want in zip(tasks, losses, exact):
            worst = max(worst, gap(t.learn(loss, keep=t is not tasks[-1]), want))
    print("SILENT-WRONG" if worst > 1e-5 else "AGREES", f"trunk gradients off by {worst:.4g}")
""",
    "Memory-lean training: segments are recomputed; the batch buffer is refilled for the next step early": """\
# Memory-lean training: segments are recomputed; the batch buffer is refilled for the next step early.
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Prefetcher:
    def __init__(self, data, batch):
        self.data, self.batch, self.pos = data, batch, 0
        self.buffer = torch.empty(batch, data.size(1))

    def next(self):
        self.buffer.copy_(self.data[self.pos:self.pos + self.batch])  # written
        self.pos += self.batch
        return self.buffer


class Net(nn.Module):
    def __init__(self, lean):
        super().__init__()
        self.seg, self.head, self.lean = nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Linear(8, 1), lean

    def forward(self, x):
        h = checkpoint(self.seg, x, use_reentrant=False) if self.lean else self.seg(x)
        return self.head(h)


def train(lean, data, batch=6):
    torch.manual_seed(0)
    net, loader = Net(lean), Prefetcher(data, batch)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = loader.next() if lean else data[:batch]
    for step in range(len(data) // batch - 1):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        following = loader.next() if lean else data[(step + 1) * batch:(step + 2) * batch]
        opt.zero_grad()
        loss.backward()
        opt.step()
        x = following
    return nn.utils.parameters_to_vector(net.parameters()).detach()


if __name__ == "__main__":
    data = torch.randn(30, 5, generator=torch.Generator().manual_seed(2))
    gap = (train(True, data) - train(False, data)).abs().max().item()
    print("SILENT-WRONG" if gap > 1e-5 else "AGREES", f"{gap:.4g}")
""",
    "Variational dropout: one mask per sequence, refilled with an init function": """\
# Variational dropout: one mask per sequence, refilled with an init function.
import torch
from torch import nn


class LockedDropout(nn.Module):
    def __init__(self, dim, p):
        super().__init__()
        self.register_buffer("mask", torch.ones(dim))
        self.p = p

    def refresh(self):
        nn.init.uniform_(self.mask, 1 - self.p, 1 + self.p)  # written

    def forward(self, x):
        return x * self.mask


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.drop = nn.Embedding(9, 4), LockedDropout(4, 0.3)
        self.rnn, self.out = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, ids):
        self.drop.refresh()
        return self.out(self.rnn(self.drop(self.emb(ids)))[0])


if __name__ == "__main__":
    torch.manual_seed(0)
    net = Tagger()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    ids, tags = torch.randint(9, (3, 5)), torch.randint(3, (3, 5))
    for _ in range(2):
        one, two = net(ids), net(ids)
        loss = nn.functional.cross_entropy(one.flatten(0, 1), tags.flatten()) + (one - two).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
""",
    "Optimizer in backward: every parameter is stepped as soon as its gradient is there": """\
# Optimizer in backward: every parameter is stepped as soon as its gradient is there.
import torch
from torch import nn


class FusedBackward:
    def __init__(self, model, lr):
        self.lr = lr
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.update)

    def update(self, p):
        with torch.no_grad():
            p.add_(p.grad, alpha=-self.lr)  # written
        p.grad = None


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, a, b):
        return self.net(a), self.net(b)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Siamese()
    FusedBackward(model, 0.05)
    for _ in range(2):
        a, b = torch.randn(5, 4), torch.randn(5, 4)
        za, zb = model(a, b)
        pull, push = (za - zb).square().mean(), torch.relu(1 - (za - zb.flip(0)).norm(dim=1)).mean()
        pull.backward(retain_graph=True)
        push.backward()
        print(pull.item(), push.item())
""",
    "Post-processing in NumPy of activations that autograd still needs": """\
# Post-processing in NumPy of activations that autograd still needs.
import numpy as np
import torch
from torch import nn


class Visualiser:
    def __init__(self):
        self.images = []

    def show(self, activation):
        image = activation.detach().numpy()
        np.subtract(image, image.min(), out=image)  # written
        np.divide(image, image.max() + 1e-8, out=image)  # written
        self.images.append((image * 255).astype(np.uint8))


class Net(nn.Module):
    def __init__(self, visualiser=None):
        super().__init__()
        self.enc, self.dec, self.vis = nn.Linear(5, 6), nn.Linear(6, 5), visualiser

    def forward(self, x):
        h = torch.tanh(self.enc(x))
        y = self.dec(h)
        if self.vis is not None:
            self.vis.show(h)
        return y


def gradient(visualiser):
    torch.manual_seed(0)
    net, x = Net(visualiser), torch.randn(4, 5)
    nn.functional.mse_loss(net(x), x).backward()
    return torch.cat([p.grad.flatten() for p in net.parameters()])


if __name__ == "__main__":
    gap = (gradient(Visualiser()) - gradient(None)).abs().max().item()
    print("SILENT-WRONG" if gap > 1e-5 else "AGREES", f"{gap:.4g}")
""",
}

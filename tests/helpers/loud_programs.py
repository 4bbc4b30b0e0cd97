"""Whole programs that end in torch's error about a write, in the style of real projects; `# written` marks the line."""

from __future__ import annotations

PROGRAMS = {
    "Discrete-time survival model": """\
# Discrete-time survival model.
import torch
from torch import nn


class Hazards(nn.Module):
    def __init__(self, dim=4, bins=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 12), nn.ReLU(), nn.Linear(12, bins))

    def forward(self, x):
        return torch.sigmoid(self.net(x))


class SurvivalLoss:
    def __init__(self, floor):
        self.floor = floor

    def curve(self, hazards):
        survival = torch.cumprod(1 - hazards, dim=1)
        survival.clamp_(min=self.floor)  # written
        return survival

    def __call__(self, hazards, event_bin, observed):
        at_event = self.curve(hazards).gather(1, event_bin[:, None]).squeeze(1)
        hazard = hazards.gather(1, event_bin[:, None]).squeeze(1)
        return -(at_event.log() + observed * hazard.log()).mean()


def main():
    torch.manual_seed(0)
    model, loss_fn = Hazards(), SurvivalLoss(1e-4)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(3):
        x = torch.randn(16, 4)
        loss = loss_fn(model(x), torch.randint(6, (16,)), (torch.rand(16) < 0.7).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
""",
    "Gaussian process hyperparameters by marginal likelihood": """\
# Gaussian process hyperparameters by marginal likelihood.
import torch
from torch import nn


class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_width, self.log_scale = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        sq = (a[:, None] - b[None]).pow(2).sum(-1)
        return torch.exp(self.log_scale - 0.5 * sq / self.log_width.exp() ** 2)


class MarginalLikelihood:
    def __init__(self, kernel, jitter):
        self.kernel, self.jitter = kernel, jitter

    def stabilised(self, x):
        k = self.kernel(x, x)
        k.diagonal().add_(self.jitter)  # written
        return k

    def __call__(self, x, y):
        factor = torch.linalg.cholesky(self.stabilised(x))
        white = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        return 0.5 * white.pow(2).sum() + factor.diagonal().log().sum()


def main():
    gen = torch.Generator().manual_seed(0)
    x = torch.rand(9, 2, generator=gen) * 3
    y = x[:, 0].sin()
    objective = MarginalLikelihood(Kernel(), 0.05)
    opt = torch.optim.Adam(objective.kernel.parameters(), lr=0.05)
    for step in range(4):
        loss = objective(x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
""",
    "Differentiable belief propagation on a chain": """\
# Differentiable belief propagation on a chain.
import torch
from torch import nn


class Chain(nn.Module):
    def __init__(self, states, length):
        super().__init__()
        self.unary = nn.Parameter(torch.randn(length, states))
        self.pair = nn.Parameter(torch.randn(states, states))

    def messages(self):
        message, self.evidence = torch.ones(self.unary.size(1)), 0.0
        for potential in self.unary.exp():
            raw = (message * potential) @ self.pair.exp()
            self.evidence = self.evidence + raw.log().mean()
            yield raw
            message = raw


def normalise(message):
    message /= message.sum()  # written
    return message


def log_belief(chain, labels):
    total = 0.0
    for label, message in zip(labels, chain.messages()):
        total = total + normalise(message)[label].log()
    return total


def main():
    torch.manual_seed(1)
    chain = Chain(3, 5)
    opt = torch.optim.SGD(chain.parameters(), lr=0.1)
    labels = [0, 2, 1, 1, 0]
    for step in range(3):
        loss = -log_belief(chain, labels) + 0.01 * chain.evidence
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
""",
    "Policy distillation: the old policy is loaded into the same network to get its outputs": """\
# Policy distillation: the old policy is loaded into the same network to get its outputs.
import copy

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs=4, actions=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, 16), nn.Tanh(), nn.Linear(16, actions))

    def log_probs(self, obs):
        return self.net(obs).log_softmax(dim=1)


class Improver:
    def __init__(self, policy):
        self.policy, self.old = policy, copy.deepcopy(policy.state_dict())
        self.opt = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def old_log_probs(self, obs):
        current = copy.deepcopy(self.policy.state_dict())
        self.policy.load_state_dict(self.old)  # written
        with torch.no_grad():
            out = self.policy.log_probs(obs)
        self.policy.load_state_dict(current)  # written
        return out

    def step(self, obs, actions, advantage):
        new = self.policy.log_probs(obs)
        old = self.old_log_probs(obs)
        ratio = (new - old).gather(1, actions[:, None]).exp().squeeze(1)
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    improver = Improver(Policy())
    obs, actions, advantage = torch.randn(20, 4), torch.randint(3, (20,)), torch.randn(20)
    for _ in range(3):
        print(improver.step(obs, actions, advantage))
""",
    "Mixture of experts with capacity: overloaded experts are switched off": """\
# Mixture of experts with capacity: overloaded experts are switched off.
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, dim, experts, capacity):
        super().__init__()
        self.score, self.capacity = nn.Linear(dim, experts), capacity

    def overloaded(self, weights):
        load = weights.detach().sum(dim=0)
        return (load > self.capacity).nonzero().flatten()

    def forward(self, x):
        weights = self.score(x).softmax(dim=1)
        return weights.index_fill_(1, self.overloaded(weights), 0.0)  # written


class Experts(nn.Module):
    def __init__(self, dim=5, experts=4):
        super().__init__()
        self.gate = Gate(dim, experts, capacity=2.2)
        self.experts = nn.ModuleList(nn.Linear(dim, 2) for _ in range(experts))

    def forward(self, x):
        outs = torch.stack([e(x) for e in self.experts], dim=1)
        return (self.gate(x)[:, :, None] * outs).sum(dim=1)


def main():
    torch.manual_seed(0)
    net = Experts()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(3):
        x = torch.randn(8, 5)
        loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
""",
    "Unit-sphere embeddings with a safe denominator": """\
# Unit-sphere embeddings with a safe denominator.
import torch
from torch import nn


class SphereHead(nn.Module):
    def __init__(self, dim, out, eps=1e-3):
        super().__init__()
        self.proj, self.eps = nn.Linear(dim, out), eps

    def forward(self, x):
        z = self.proj(x)
        length = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        length.clamp_(min=self.eps)  # written
        return z / length


class Triplet:
    def __init__(self, margin):
        self.margin = margin

    def __call__(self, anchor, positive, negative):
        gap = (anchor * negative).sum(1) - (anchor * positive).sum(1) + self.margin
        return gap.relu().mean()


def batches(count, gen):
    for _ in range(count):
        base = torch.randn(10, 6, generator=gen)
        yield base, base + 0.1 * torch.randn(10, 6, generator=gen), torch.randn(10, 6, generator=gen)


def main():
    torch.manual_seed(0)
    head, loss_fn = SphereHead(6, 3), Triplet(0.5)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    for a, p, n in batches(3, torch.Generator().manual_seed(1)):
        loss = loss_fn(head(a), head(p), head(n))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())


if __name__ == "__main__":
    main()
""",
    "Keypoint pooling that reports where each maximum came from": """\
# Keypoint pooling that reports where each maximum came from.
import torch
from torch import nn
import torch.nn.functional as F


class KeypointPool(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, maps):
        values, where = F.max_pool2d(maps, self.size, return_indices=True)
        planes = torch.arange(maps.size(1))[None, :, None, None]
        where += planes * maps.size(2) * maps.size(3)  # written
        return values, where


class Detector(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, channels, 3, padding=1), KeypointPool(4)
        self.out = nn.Linear(channels * 4, 2)

    def forward(self, image):
        values, where = self.pool(self.conv(image))
        return self.out(values.flatten(1)), where


def main():
    torch.manual_seed(0)
    net = Detector()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(3):
        image, point = torch.randn(2, 1, 8, 8), torch.rand(2, 2)
        predicted, where = net(image)
        loss = F.smooth_l1_loss(predicted, point)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item(), where.max().item())


if __name__ == "__main__":
    main()
""",
    "Self-training with soft labels refined every round": """\
# Self-training with soft labels refined every round.
import torch
from torch import nn


class SoftLabels:
    def __init__(self, count, classes):
        self.table = torch.full((count, classes), 1.0 / classes)

    def sharpen(self, probs, rate):
        self.table.lerp_(probs, rate)  # written
        self.table.div_(self.table.sum(dim=1, keepdim=True))  # written

    def loss(self, logits):
        return -(self.table * logits.log_softmax(dim=1)).sum(dim=1).mean()


class SelfTrainer:
    def __init__(self, data, classes=3):
        self.data, self.labels = data, SoftLabels(len(data), classes)
        self.net = nn.Sequential(nn.Linear(data.size(1), 8), nn.ReLU(), nn.Linear(8, classes))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def round(self):
        logits = self.net(self.data)
        loss = self.labels.loss(logits)
        self.labels.sharpen(logits.detach().softmax(dim=1).pow(2), 0.3)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = SelfTrainer(torch.randn(18, 4))
    for _ in range(3):
        print(trainer.round())
""",
    "Listwise ranking with discounted gains": """\
# Listwise ranking with discounted gains.
import torch
from torch import nn


class DiscountedGain:
    def __init__(self, items):
        self.positions = torch.arange(1, items + 1).float()

    def __call__(self, scores, relevance):
        soft_rank = 0.5 + torch.sigmoid(scores[:, None, :] - scores[:, :, None]).sum(dim=2)
        discount = torch.log2(1 + soft_rank)
        gain = (2 ** relevance - 1) / discount
        discount[:, 0] = 1.0  # written
        bonus = relevance[:, 0] / discount[:, 0]
        return -(gain.sum(dim=1) + bonus).mean()


class Scorer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 8), nn.GELU(), nn.Linear(8, 1))

    def forward(self, items):
        return self.net(items).squeeze(-1)


def main():
    torch.manual_seed(0)
    scorer, loss_fn = Scorer(4), DiscountedGain(5)
    opt = torch.optim.RMSprop(scorer.parameters(), lr=1e-2)
    for step in range(3):
        items = torch.randn(6, 5, 4)
        loss = loss_fn(scorer(items), (items[:, :, 0] > 0).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
""",
    "Instance normalisation written by hand for spectrograms": """\
# Instance normalisation written by hand for spectrograms.
import torch
from torch import nn


class SpectrogramNorm(nn.Module):
    def __init__(self, bands, floor=0.05):
        super().__init__()
        self.gain, self.floor = nn.Parameter(torch.ones(bands, 1)), floor

    def forward(self, spec):
        centred = spec - spec.mean(dim=2, keepdim=True)
        spread = spec.std(dim=2, keepdim=True)
        spread.add_(self.floor)  # written
        return self.gain * centred / spread


class Tagger(nn.Module):
    def __init__(self, bands=6, tags=3):
        super().__init__()
        self.mix, self.norm, self.out = nn.Conv1d(bands, bands, 1), SpectrogramNorm(bands), nn.Linear(bands, tags)

    def forward(self, spec):
        return self.out(self.norm(self.mix(spec)).abs().mean(dim=2))


def main():
    torch.manual_seed(0)
    tagger = Tagger()
    opt = torch.optim.Adam(tagger.parameters(), lr=1e-2)
    for step in range(3):
        spec = torch.rand(4, 6, 12)
        loss = nn.functional.binary_cross_entropy_with_logits(tagger(spec), torch.randint(2, (4, 3)).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
""",
    "Gradual magnitude pruning during training": """\
# Gradual magnitude pruning during training.
import torch
from torch import nn


class Pruner:
    def __init__(self, net, every):
        self.layers = [m for m in net.modules() if isinstance(m, nn.Linear)]
        self.every, self.fraction, self.calls = every, 0.0, 0

    def maybe_prune(self):
        self.calls += 1
        if self.calls % self.every:
            return
        self.fraction = min(0.5, self.fraction + 0.1)
        for layer in self.layers:
            w = layer.weight.detach()
            limit = w.abs().flatten().kthvalue(max(1, int(self.fraction * w.numel()))).values
            w.masked_fill_(w.abs() <= limit, 0.0)  # written

    def sparsity(self):
        return sum(int((l.weight == 0).sum()) for l in self.layers)


def train(net, pruner, steps):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(12, 5)
        loss = nn.functional.mse_loss(net(x), x.sum(dim=1, keepdim=True))
        pruner.maybe_prune()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
    pruner = Pruner(net, every=2)
    print([round(v, 4) for v in train(net, pruner, 4)], pruner.sparsity())
""",
}

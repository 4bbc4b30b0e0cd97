"""Six ways of training. Each `train_*` returns all its losses; `python harmless_programs.py NAME [watch]` prints
what came of it, and its peak memory, as JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import resource
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 20


def cnn():
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout2d(0.1)),
        *(nn.Conv2d(16, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(inplace=True)),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5)),
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(STEPS):
        x, y = torch.randn(8, 3, 32, 32), torch.randint(5, (8,))
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        yield loss, net


def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    net = nn.Sequential(
        nn.Embedding(50, 32), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 50)
    )
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(STEPS):
        ids = torch.randint(50, (4, 12))
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            net.eval()
            with torch.no_grad():
                loss = loss + net(ids).mean()
            net.train()
        yield loss, net


def rnn():
    cell, head = nn.GRUCell(8, 16), nn.Linear(16, 8)
    net = nn.ModuleList([cell, head])
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    hidden = torch.zeros(4, 16)
    for _ in range(STEPS):
        total, outputs = 0.0, torch.zeros(10, 4, 8)
        hidden = hidden.detach()
        for t in range(10):
            hidden = cell(torch.randn(4, 8), hidden)
            outputs[t] = prediction = head(hidden)
            total = total + prediction.pow(2).mean()
        opt.zero_grad()
        total.backward()
        opt.step()
        yield total, net


def gan():
    gen = nn.Sequential(nn.Linear(4, 16), nn.ReLU(inplace=True), nn.Linear(16, 6))
    disc = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1))
    og, od = torch.optim.Adam(gen.parameters(), 1e-3), torch.optim.Adam(disc.parameters(), 1e-3)
    for _ in range(STEPS):
        real, fake = torch.randn(8, 6) + 1, gen(torch.randn(8, 4))
        loss_d = F.softplus(-disc(real)).mean() + F.softplus(disc(fake.detach())).mean()
        od.zero_grad()
        loss_d.backward()
        od.step()
        loss_g = F.softplus(-disc(fake)).mean()
        og.zero_grad()
        loss_g.backward()
        og.step()
        yield loss_d + loss_g, nn.ModuleList([gen, disc])


def actor_critic():
    actor, critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    target = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    target.load_state_dict(critic.state_dict())
    oa, oc = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
    for _ in range(STEPS):
        obs, nxt, reward = torch.randn(8, 4), torch.randn(8, 4), torch.randn(8, 1)
        mean, log_std = actor(obs).chunk(2, -1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        act = dist.rsample()
        with torch.no_grad():
            goal = reward + 0.9 * target(torch.cat([nxt, act], -1))
        loss_c = F.mse_loss(critic(torch.cat([obs, act.detach()], -1)), goal)
        oc.zero_grad()
        loss_c.backward()
        oc.step()
        loss_a = (0.1 * dist.log_prob(act).sum(-1, keepdim=True) - critic(torch.cat([obs, act], -1))).mean()
        oa.zero_grad()
        loss_a.backward()
        oa.step()
        for t, c in zip(target.parameters(), critic.parameters(), strict=True):
            t.data.mul_(0.95).add_(c.data, alpha=0.05)
        yield loss_c + loss_a, nn.ModuleList([actor, critic, target])


def checkpointed():
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Dropout(0.2)) for _ in range(4)])
    head = nn.Linear(16, 1)
    net = nn.ModuleList([blocks, head])
    opt = torch.optim.Adagrad(net.parameters(), lr=0.01)
    for step in range(STEPS):
        h = torch.randn(8, 16, requires_grad=True)
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=bool(step % 2))
        loss = head(h).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss, net


PROGRAMS = {f.__name__: f for f in (cnn, transformer, rnn, gan, actor_critic, checkpointed)}


def run(name: str, watched: bool) -> dict[str, object]:
    import torchsan

    torch.manual_seed(0)
    torch.set_num_threads(1)
    digest, losses = hashlib.sha256(), []
    with torchsan.watch() if watched else contextlib.nullcontext() as report:
        for loss, net in PROGRAMS[name]():
            losses.append(loss.item().hex())
    for tensor in (*net.parameters(), *net.buffers(), torch.get_rng_state()):
        digest.update(tensor.detach().numpy().tobytes())
    return {
        "losses": losses,
        "state": digest.hexdigest(),
        "peak_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "findings": [f.as_json() for f in report.findings] if watched else [],
        "notes": report.notes if watched else [],
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], len(sys.argv) > 2)))

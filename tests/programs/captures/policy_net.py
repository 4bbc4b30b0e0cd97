"""Actor with call statistics kept for the dashboard."""
import logging
import time
from collections import Counter

import torch
import torch.nn as nn

log = logging.getLogger(__name__)


class CallStats:
    def __init__(self):
        self.counts = Counter()
        self.last = 0.0

    def hit(self, name):
        self.counts[name] += 1
        self.last = time.monotonic()
        if self.counts[name] % 1000 == 0:
            log.info("%s called %d times", name, self.counts[name])


class GaussianActor(nn.Module):
    LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0

    def __init__(self, obs_dim=11, act_dim=3, hidden=24, squash=True):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mu = nn.Linear(hidden, act_dim)
        self.log_std = nn.Linear(hidden, act_dim)
        self.squash = squash
        self.forward_calls = 0
        self.stats = CallStats()
        self.register_buffer("act_scale", torch.tensor([1.0, 0.5, 2.0]))

    def forward(self, obs):
        self.forward_calls += 1
        self.stats.hit("act")
        h = self.body(obs)
        mu = self.mu(h)
        log_std = torch.clamp(self.log_std(h), self.LOG_STD_MIN, self.LOG_STD_MAX)
        if self.squash:
            mu = torch.tanh(mu) * self.act_scale
        return mu, log_std.exp()


def factory():
    torch.manual_seed(5)
    return GaussianActor().eval(), (torch.randn(4, 11),)

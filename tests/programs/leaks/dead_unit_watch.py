#!/usr/bin/env python
# Small regression net on sensor tables; watches how many units are silent.
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn

CFG = dict(n_in=12, width=48, depth=3, batch=32, steps=24, lr=2e-3, seed=5)


class ActivationWatch:
    def __init__(self, net, kinds=(nn.ReLU, nn.LeakyReLU)):
        self.stats = defaultdict(list)
        self.handles = []
        for name, mod in net.named_modules():
            if isinstance(mod, kinds):
                self.handles.append(mod.register_forward_hook(self._make(name)))

    def _make(self, name):
        def hook(module, inputs, output):
            if module.training:
                mean = output.mean(dim=0)
                self.stats[name].append(mean)
        return hook

    def silent(self, name, thr=1e-6):
        table = torch.stack([m.detach() for m in self.stats[name]])
        return int((table.abs().amax(dim=0) < thr).sum())

    def report(self):
        return {k: self.silent(k) for k in self.stats}

    def close(self):
        for h in self.handles:
            h.remove()


def make_net(cfg):
    layers, d = [], cfg["n_in"]
    for _ in range(cfg["depth"]):
        layers += [nn.Linear(d, cfg["width"]), nn.ReLU()]
        d = cfg["width"]
    return nn.Sequential(*layers, nn.Linear(d, 1))


def batches(cfg, rng):
    w = rng.normal(size=cfg["n_in"])
    while True:
        x = rng.normal(size=(cfg["batch"], cfg["n_in"]))
        y = np.sin(x @ w) + 0.1 * rng.normal(size=cfg["batch"])
        yield torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)


def fit(cfg):
    torch.manual_seed(cfg["seed"])
    net = make_net(cfg)
    watch = ActivationWatch(net)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"])
    stream = batches(cfg, np.random.default_rng(cfg["seed"]))
    for step in range(cfg["steps"]):
        x, y = next(stream)
        err = nn.functional.mse_loss(net(x).squeeze(-1), y)
        opt.zero_grad(set_to_none=True)
        err.backward()
        opt.step()
        if (step + 1) % 8 == 0:
            print(f"step={step + 1} mse={err.item():.4f} silent={watch.report()}")
    watch.close()
    return net


if __name__ == "__main__":
    fit(CFG)

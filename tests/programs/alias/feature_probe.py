"""Fits linear probes on intermediate features of a frozen encoder."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stages = nn.ModuleList()
        previous = 1
        for _ in range(2):
            self.stages.append(nn.Sequential(
                nn.Conv1d(previous, width, 3, padding=1),
                nn.BatchNorm1d(width),
                nn.ReLU(inplace=True),
            ))
            previous = width

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x


class FeatureTap:
    def __init__(self, model, kinds):
        self.features = {}
        self.handles = [m.register_forward_hook(self._keep(n)) for n, m in model.named_modules() if isinstance(m, kinds)]

    def _keep(self, name):
        def hook(module, args, output):
            self.features[name] = output.detach()
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()


def probe(features, target, ridge=1e-2):
    flat = features.mean(-1)
    flat = torch.cat([flat, torch.ones(len(flat), 1)], 1)
    gram = flat.t() @ flat + ridge * torch.eye(flat.shape[1])
    weights = torch.linalg.solve(gram, flat.t() @ target)
    return (flat @ weights - target).pow(2).mean().item()


def signals(n, gen):
    slope = torch.randn(n, 1, 1, generator=gen)
    t = torch.linspace(0, 1, 20).view(1, 1, -1)
    return slope * t + 0.2 * torch.randn(n, 1, 20, generator=gen), slope.view(n, 1)


def main():
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(4)
    encoder = Encoder()
    x, target = signals(80, gen)
    with torch.no_grad():
        encoder(x)
        encoder.eval()
        tap = FeatureTap(encoder, nn.BatchNorm1d)
        encoder(x)
    tap.close()
    for name, features in tap.features.items():
        low = features.min().item()
        print(f"{name}: lowest {low:.4f} mean {features.mean().item():.4f} probe error {probe(features, target):.5f}")


if __name__ == "__main__":
    main()

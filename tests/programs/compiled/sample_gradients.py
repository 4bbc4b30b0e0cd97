"""Per-sample gradient norms of a probe, with samples centred where they are used."""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(1)
probe = nn.Linear(5, 1)
params = {k: v.detach() for k, v in probe.named_parameters()}


def loss_of(params, x, y):
    x.sub_(x.mean())
    out = functional_call(probe, params, (x,))
    return ((out - y) ** 2).mean()


@torch.compile(backend="aot_eager")
def gradient_norms(params, xs, ys):
    grads = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, xs, ys)
    return sum(g.flatten(1).pow(2).sum(1) for g in grads.values()).sqrt()


def main():
    xs, ys = torch.randn(6, 5) + 3, torch.randn(6, 1)
    kept = xs.clone()
    norms = gradient_norms(params, xs, ys)
    weights = norms / norms.sum()
    level = (xs.mean(1) * weights).sum()
    expected = (kept.mean(1) * weights).sum()
    print(level.item())
    if not torch.allclose(level, expected):
        print("SILENT-WRONG", level.item(), expected.item())


if __name__ == "__main__":
    main()

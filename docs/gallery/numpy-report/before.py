import torch
from torch import nn


def sparsity(weight):
    values = weight.detach().numpy()
    values[abs(values) < 0.2] = 0.0
    return float((values == 0).mean())


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
loss = model(torch.randn(8, 6)).square().mean()
print(f"sparsity {sparsity(model[2].weight):.2f}")
loss.backward()

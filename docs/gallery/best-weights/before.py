import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(20, 1)
optim = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(24, 20), torch.randn(24, 1)
held_x, held_y = torch.randn(24, 20), torch.randn(24, 1)
best, best_loss = None, float("inf")

for _ in range(30):
    loss = (model(x) - y).square().mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    with torch.no_grad():
        held_loss = (model(held_x) - held_y).square().mean().item()
    if held_loss < best_loss:
        best_loss, best = held_loss, model.state_dict()

model.load_state_dict(best)
restored = (model(held_x) - held_y).square().mean().item()
print(f"best {best_loss:.4f}, restored {restored:.4f}")

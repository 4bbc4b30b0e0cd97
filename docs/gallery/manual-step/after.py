import torch

torch.manual_seed(0)
x = torch.randn(16, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5])
weight = torch.zeros(3, requires_grad=True)

for _ in range(20):
    loss = (x @ weight - y).square().mean()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    weight.grad.zero_()

print(f"loss {loss.item():.4f}")

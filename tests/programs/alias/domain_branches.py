"""Two feature branches that are added, one of them trained with a reversed gradient."""
import torch
import torch.nn.functional as F
from torch import nn


class Reverse:
    """Tensor hook: flips and scales the gradient that enters a branch."""

    def __init__(self, strength):
        self.strength = strength

    def __call__(self, grad):
        return grad.mul_(-self.strength)


class Fusion(nn.Module):
    def __init__(self, width, strength):
        super().__init__()
        self.content = nn.Linear(8, width)
        self.domain = nn.Linear(8, width)
        self.reverse = Reverse(strength)

    def forward(self, x):
        content = self.content(x)
        domain = self.domain(x)
        if domain.requires_grad:
            domain.register_hook(self.reverse)
        return content + domain


class Classifier(nn.Module):
    def __init__(self, width=12, classes=3, strength=0.2):
        super().__init__()
        self.fusion = Fusion(width, strength)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.fusion(x)))


def make_data(n, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=gen)
    y = (x[:, 0] > 0).long() + (x[:, 1] + x[:, 2] > 0.5).long()
    return x, y


def branch_gradients(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return model.fusion.content.weight.grad.norm().item(), model.fusion.domain.weight.grad.norm().item()


def main():
    torch.manual_seed(2)
    x, y = make_data(160, 5)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    content, domain = branch_gradients(model, x, y)
    print(f"gradient norms: content {content:.5f} domain {domain:.5f}")
    for step in range(80):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {acc:.3f}")


if __name__ == "__main__":
    main()

"""Weight and spectral norm, hooks before and behind layers that work in place on what nobody saved."""
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


def shifted(module, given):
    return (given[0] + 0.1,)


def halved(module, given, result):
    return result.mul_(0.5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = weight_norm(nn.Linear(5, 9)), spectral_norm(nn.Linear(9, 2))
        self.first.register_forward_pre_hook(shifted)
        self.first.register_forward_hook(halved)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


def main():
    torch.manual_seed(4)
    net = Net()
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(4):
        x = torch.randn(8, 5)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            net.first.parametrizations.weight.original0.clamp_(max=2.0)
        print(loss.item())


if __name__ == "__main__":
    main()

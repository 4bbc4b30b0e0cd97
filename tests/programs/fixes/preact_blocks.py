"""Pre-activation residual blocks in the variant with shared activation.

Every block computes  y = conv2(relu(conv1(r))) + r   with  r = relu(x),
that is, the shortcut leaves after the first activation.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SharedPreActBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x):
        out = self.conv1(self.relu(x))
        out = self.conv2(F.relu(out))
        return out + x


class Net(nn.Module):
    def __init__(self, ch=5, blocks=2, n_cls=3):
        super().__init__()
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.blocks = nn.ModuleList(SharedPreActBlock(ch) for _ in range(blocks))
        self.fc = nn.Linear(ch, n_cls)

    def forward(self, img):
        x = torch.tanh(self.stem(img))
        for b in self.blocks:
            x = b(x)
        return self.fc(x.mean((2, 3)))


def reference_first_loss(net, img, y):
    with torch.no_grad():
        x = torch.tanh(net.stem(img))
        for b in net.blocks:
            r = F.relu(x)
            x = b.conv2(F.relu(b.conv1(r))) + r
        return F.cross_entropy(net.fc(x.mean((2, 3))), y).item()


def main():
    torch.manual_seed(83)
    img = torch.randn(9, 1, 7, 7)
    y = torch.arange(9) % 3
    img[torch.arange(9), 0, 0, y] += 3
    net = Net()
    ref = reference_first_loss(net, img, y)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    log = []
    for epoch in range(5):
        loss = F.cross_entropy(net(img), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.append(loss.item())
    print("RESULT", *(f"{v:.6g}" for v in [ref] + log + [net.stem.weight.detach().norm().item()]))


if __name__ == "__main__":
    main()

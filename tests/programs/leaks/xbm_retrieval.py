# Cross-batch memory for embedding learning (toy product photos as vectors).
import torch
import torch.nn as nn
import torch.nn.functional as F


class XBM:
    def __init__(self, size):
        self.K = size
        self.feats, self.targets = [], []

    @property
    def count(self):
        return sum(f.size(0) for f in self.feats)

    def enqueue_dequeue(self, feats, targets):
        self.feats.append(feats.detach())
        self.targets.append(targets.detach())
        while self.count > self.K:
            self.feats.pop(0)
            self.targets.pop(0)

    def get(self):
        return torch.cat(self.feats), torch.cat(self.targets)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=0.5):
        super().__init__()
        self.margin = margin

    def forward(self, a, ta, b, tb):
        sim = a @ b.t()
        same = ta[:, None] == tb[None, :]
        pos = (1 - sim[same & (sim < 1 - 1e-5)]).sum()
        neg = F.relu(sim[~same] - self.margin).sum()
        return (pos + neg) / a.size(0)


class Encoder(nn.Module):
    def __init__(self, n_in=20, n_out=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, 40), nn.PReLU(), nn.Linear(40, n_out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def loader(iters, proto):
    for _ in range(iters):
        y = torch.randint(proto.size(0), (16,))
        yield proto[y] + 0.8 * torch.randn(16, proto.size(1)), y


def recall_at_1(model, proto):
    with torch.no_grad():
        x, y = next(loader(1, proto))
        g, gy = next(loader(1, proto))
        return (gy[(model(x) @ model(g).t()).argmax(1)] == y).float().mean().item()


def do_train(iters=32, memory=320, start=3, weight=0.5):
    torch.manual_seed(10)
    proto = torch.randn(6, 20)
    model, crit, xbm = Encoder(), ContrastiveLoss(), XBM(memory)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for it, (x, y) in enumerate(loader(iters, proto)):
        feats = model(x)
        loss = crit(feats, y, feats, y)
        xbm.enqueue_dequeue(feats, y)
        if it >= start:
            loss = loss + weight * crit(feats, y, *xbm.get())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("memory", xbm.count, "loss %.3f" % loss.item(), "recall@1 %.2f" % recall_at_1(model, proto))


if __name__ == "__main__":
    do_train()

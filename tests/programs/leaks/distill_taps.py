"""Hint-based distillation of a small CNN from a wider one."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Taps:
    def __init__(self, model, names):
        self.kept = {}
        modules = dict(model.named_modules())
        for n in names:
            modules[n].register_forward_hook(lambda m, i, o, n=n: self.kept.setdefault(n, []).append(o))

    def attention(self, name):
        return [F.normalize(o.pow(2).mean(1).flatten(1), dim=1) for o in self.kept[name]]

    def clear(self):
        self.kept.clear()


def convnet(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(width * 4, 4))


def quadrant(n, gen):
    y = torch.randint(0, 4, (n,), generator=gen)
    x = 0.5 * torch.randn(n, 1, 8, 8, generator=gen)
    for i, c in enumerate(y.tolist()):
        r, k = divmod(c, 2)
        x[i, 0, 4 * r:4 * r + 4, 4 * k:4 * k + 4] += 0.8
    return x, y


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(6)
    teacher, student = convnet(16).eval(), convnet(5)
    layers = ["0", "3"]
    t_taps, s_taps = Taps(teacher, layers), Taps(student, layers)
    opt = torch.optim.Adam(student.parameters(), lr=1e-2)
    for step in range(36):
        x, y = quadrant(24, gen)
        with torch.no_grad():
            soft = teacher(x)
        logits = student(x)
        hint = sum((a - b).pow(2).mean() for n in layers
                   for a, b in zip(s_taps.attention(n), t_taps.attention(n)))
        kd = F.kl_div(logits.log_softmax(1), soft.softmax(1), reduction="batchmean")
        loss = F.cross_entropy(logits, y) + 0.1 * kd + 5.0 * hint
        opt.zero_grad()
        loss.backward()
        opt.step()
        s_taps.clear()
        t_taps.clear()
    print(f"loss {loss.item():.3f} hint {hint.item():.5f}")


main()

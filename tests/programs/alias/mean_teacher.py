"""Mean-teacher consistency training."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Teacher:
    def __init__(self, student, decay):
        self.net = copy.deepcopy(student).requires_grad_(False).eval()
        self.decay = decay
        self.pairs = list(zip(self.net.parameters(), student.parameters()))
        self.buffers = list(zip(self.net.buffers(), student.buffers()))

    @torch.no_grad()
    def follow(self):
        for slow, fast in self.pairs:
            slow.lerp_(fast, 1 - self.decay)
        for slow, fast in self.buffers:
            slow.copy_(fast)


def build():
    return nn.Sequential(nn.Linear(5, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Linear(32, 3))


def perturb(x, gen, strength):
    noise = torch.randn(x.shape, generator=gen)
    return noise.mul_(strength).add_(x)


def make(gen, n):
    x = torch.randn(n, 5, generator=gen)
    y = (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0.3).long()
    return x, y


def step(student, teacher, optimizer, labelled, unlabelled, gen, weight):
    x, y = labelled
    with torch.no_grad():
        soft = teacher.net(perturb(unlabelled, gen, 0.05)).softmax(-1)
    logits = student(torch.cat([x, perturb(unlabelled, gen, 0.1)]))
    fit = F.cross_entropy(logits[:len(x)], y)
    agree = F.mse_loss(logits[len(x):].softmax(-1), soft)
    optimizer.zero_grad()
    (fit + weight * agree).backward()
    optimizer.step()
    teacher.follow()
    return fit.item(), agree.item()


def accuracy(net, x, y):
    was = net.training
    net.eval()
    with torch.no_grad():
        hits = (net(x).argmax(1) == y).float().mean().item()
    net.train(was)
    return hits


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    student = build()
    teacher = Teacher(student, 0.95)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    x, y = make(gen, 48)
    pool, _ = make(gen, 256)
    held = make(gen, 400)
    for i in range(60):
        rows = torch.randint(256, (64,), generator=gen)
        fit, agree = step(student, teacher, optimizer, (x, y), pool[rows], gen, 5.0)
        if i % 20 == 19:
            print(i, round(fit, 4), round(agree, 4))
    print("student", round(accuracy(student, *held), 3), "teacher", round(accuracy(teacher.net, *held), 3))


if __name__ == "__main__":
    main()

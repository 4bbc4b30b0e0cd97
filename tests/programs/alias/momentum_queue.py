"""Contrastive pre-training: momentum teacher, a feature queue, and a tied reconstruction decoder."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class TiedAutoencoder(nn.Module):
    def __init__(self, inputs=10, width=8, dim=6):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, dim)
        self.back = nn.Linear(dim, width)
        self.back.weight = nn.Parameter(torch.empty(width, dim).normal_(0, 0.3))
        self.mirror = nn.Linear(inputs, width, bias=False)
        self.mirror.weight = self.first.weight

    def forward(self, x):
        return F.normalize(self.second(torch.relu(self.first(x))), dim=1)

    def reconstruct(self, z):
        return F.linear(torch.relu(self.back(z)), self.mirror.weight.T)


class Teacher:
    def __init__(self, student, decay):
        self.net = copy.deepcopy(student).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def follow(self, student):
        for slow, fast in zip(self.net.parameters(), student.parameters()):
            slow.lerp_(fast, 1 - self.decay)


class Queue:
    def __init__(self, size, dim):
        self.keys = F.normalize(torch.randn(size, dim), dim=1)
        self.at = 0

    def negatives(self):
        return self.keys.clone()

    @torch.no_grad()
    def push(self, keys):
        self.keys[self.at : self.at + len(keys)] = keys
        self.at = (self.at + len(keys)) % len(self.keys)


def contrast(query, key, negatives, temperature=0.2):
    positive = (query * key).sum(1, keepdim=True)
    logits = torch.cat([positive, query @ negatives.T], 1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def main(steps=24, batch=8):
    torch.manual_seed(0)
    data = torch.randn(64, 10)
    student = TiedAutoencoder()
    teacher = Teacher(student, decay=0.9)
    by_hand = [p.detach().clone() for p in student.parameters()]
    queue = Queue(32, 6)
    opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        x = data[torch.randint(64, (batch,))]
        with torch.no_grad():
            key = teacher.net(x + 0.1 * torch.randn_like(x))
        query = student(x + 0.1 * torch.randn_like(x))
        loss = contrast(query, key, queue.negatives()) + 0.1 * F.mse_loss(student.reconstruct(query), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        teacher.follow(student)
        by_hand = [0.9 * a + 0.1 * p.detach() for a, p in zip(by_hand, student.parameters())]
        queue.push(key)
        losses.append(loss.item())
    gap = max((a - b).abs().max().item() for a, b in zip(by_hand, teacher.net.parameters()))
    assert gap < 1e-5, gap
    assert student.mirror.weight is student.first.weight
    return losses


if __name__ == "__main__":
    losses = main()
    print("CLEAN", f"{losses[0]:.4f} -> {losses[-1]:.4f}")

"""Streaming keyword spotter: chunks come in one after the other."""
import torch
import torch.nn as nn


class StreamState:
    def __init__(self):
        self.slots = {}

    def get(self, name, like):
        return self.slots.get(name, torch.zeros_like(like))

    def put(self, name, value):
        self.slots[name] = value

    def reset(self):
        self.slots.clear()


class CausalConv(nn.Module):
    def __init__(self, name, cin, cout, k, state):
        super().__init__()
        self.name, self.k = name, k
        self.conv = nn.Conv1d(cin, cout, k)
        self.state = state

    def forward(self, chunk):
        tail = chunk[..., -(self.k - 1):]
        left = self.state.get(self.name, tail)
        self.state.put(self.name, tail.detach())
        return self.conv(torch.cat([left, chunk], -1))


class KeywordSpotter(nn.Module):
    def __init__(self, mels=10, ch=12, keywords=4):
        super().__init__()
        self.state = StreamState()
        self.c1 = CausalConv("c1", mels, ch, 3, self.state)
        self.c2 = CausalConv("c2", ch, ch, 5, self.state)
        self.out = nn.Linear(ch, keywords)

    def forward(self, mel_chunk):
        h = torch.relu(self.c1(mel_chunk))
        h = torch.relu(self.c2(h))
        return self.out(h.amax(-1)).sigmoid()


def factory():
    torch.manual_seed(8)
    return KeywordSpotter().eval(), (torch.randn(1, 10, 16),)

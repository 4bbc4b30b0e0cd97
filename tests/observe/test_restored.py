"""`p.data = kept`, where what was kept is the parameter's own memory."""

from __future__ import annotations

import pytest

CLIMB = """
import torch

model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
old = {}
for _ in range(4):
    model(torch.ones(2, 3)).pow(2).mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            old[p] = <kept>
            p.add_(p.grad)  # climbs
    opt.zero_grad()
    model(torch.ones(2, 3)).pow(2).mean().backward()
    for p in model.parameters():
        p.data = old[p]
    opt.step()
    opt.zero_grad()
"""

POINTED = """
import torch

model = torch.nn.Linear(3, 1)
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
views = [flat[:3].view(1, 3), flat[3:]]
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    for p, view in zip(model.parameters(), views):
        p.data = view
    opt.zero_grad()
    model(torch.ones(2, 3)).pow(2).mean().backward()
    opt.step()
"""


def test_a_restore_of_its_own_memory_is_told(watch_program):
    watched = watch_program(CLIMB.replace("<kept>", "p.data"))
    assert {finding.code for finding in watched.alarms} == {"TS203"}
    assert watched.marked("climbs") <= watched.lines("mutated")


@pytest.mark.parametrize("source", [CLIMB.replace("<kept>", "p.data.clone()"), POINTED])
def test_copies_and_parameters_that_are_pointed_at_a_flat_buffer_are_left_alone(source, watch_program):
    watched = watch_program(source)
    assert watched.error is None
    assert watched.alarms == []


PACKETS = """
import struct
import torch


class Bank:
    def __init__(self):
        self.frames = {}

    def add(self, n, frame):
        self.frames[n] = frame<copy>  # kept

    def levels(self):
        return [f.sum().item() for f in self.frames.values()]


class Receiver:
    def __init__(self):
        self.packet = bytearray(16)

    def read(self, n):
        for i in range(4):
            struct.pack_into("<f", self.packet, 4 * i, n + i)  # written
        return torch.frombuffer(self.packet, dtype=torch.float32)


receiver, bank = Receiver(), Bank()
for n in range(6):
    bank.add(n, receiver.read(n))
print(bank.levels())
"""


def test_tensors_of_one_byte_buffer_are_one_memory(watch_program):
    watched = watch_program(PACKETS.replace("<copy>", ""))
    assert [finding.code for finding in watched.alarms] == ["TS203"]
    assert watched.lines("aliased") == watched.marked("kept")
    assert watched.lines("mutated") == watched.marked("written")


def test_copies_of_one_byte_buffer_are_left_alone(watch_program):
    assert watch_program(PACKETS.replace("<copy>", ".clone()")).alarms == []

"""A state dictionary that is loaded at once was not trained in between, whoever had its memory's address before."""

from __future__ import annotations

REUSED = """
import torch

with torch.no_grad():
    for _ in range(8):
        gone = [torch.zeros(3) for _ in range(64)]
        for tensor in gone:
            tensor.add_(1)
            tensor.add_(1)
        del gone, tensor
        net = torch.nn.Module()
        for name in "abcdefgh":
            net.register_buffer(name, torch.empty(3))
        other = torch.nn.Module()
        for name in "abcdefgh":
            other.register_buffer(name, torch.empty(3))
        other.load_state_dict(net.state_dict())
"""

WRITTEN = """
import torch

net, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
taken = net.state_dict()  # taken
with torch.no_grad():
    net.weight.mul_(2)
other.load_state_dict(taken)
"""


def test_what_another_tensor_of_that_address_went_through_does_not_count(watch_program, sensor):
    assert watch_program(REUSED).codes == []


def test_what_is_written_in_between_does(watch_program, sensor):
    watched = watch_program(WRITTEN)
    assert {(f.code, f.certainty) for f in watched.report.findings} == {("TS203", "possible")}
    assert watched.marked("taken") <= watched.lines("aliased")

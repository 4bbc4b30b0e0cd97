"""What a function goes on to do with a model, below the line at which a child process is started."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from torchsan.observe.going_on import goes_on_with, models_of

HEAD = """
import torch

found = []


class Member:
    def __init__(self, size):
        self.net = torch.nn.Linear(size, 1)
        self.score = 0.0

    def ahead(self, x):
        return self.net(x)

    def told(self):
        return self.score


class Team:
    def __init__(self):
        self.members = [Member(2), Member(3)]
        self.scores = {}

    def run(self):
        start()
        self.rest()

    def rest(self):
        raise NotImplementedError


def loss_of(net):
    return net.weight.sum()


def best_of(members):
    ranked = sorted(members, key=lambda m: m.score)
    best, worst = ranked[0], ranked[-1]
    return loss_of(best.net), worst.score


def table(members):
    for index, member in enumerate(members):
        print(index, member.told())


"""

USED = {
    "run": ("net", "net = torch.nn.Linear(2, 1)\nstart()\nnet(torch.ones(1, 2))"),
    "handed to a function": ("net", "net = torch.nn.Linear(2, 1)\nstart()\nloss_of(net=net)"),
    "under another name": ("nets[0]", "nets = [torch.nn.Linear(2, 1)]\nstart()\nfirst = nets[0]\nloss_of(first)"),
    "an entry by a loop": (
        "nets[1]",
        "nets = [Member(1).net, torch.nn.Linear(2, 1)]\nstart()\nfor n in nets: loss_of(n)",
    ),
    "in a list of objects": ("boxes[0].net", "boxes = [Member(2)]\nstart()\nmin(loss_of(b.net) for b in boxes)"),
    "by values": ("boxes['a'].net", "boxes = {'a': Member(2)}\nstart()\nfor k, b in boxes.items(): loss_of(b.net)"),
    "beside others": ("boxes[0].net", "boxes = [Member(2)]\nstart()\nfor i, b in zip([1], boxes): loss_of(b.net)"),
    "in a function that gets the list": ("boxes[0].net", "boxes = [Member(2)]\nstart()\nbest_of(boxes)"),
    "by the object's own method": ("boxes[0].net", "boxes = [Member(2)]\nstart()\nboxes[0].ahead(torch.ones(1, 2))"),
    "in lists of lists": (
        "teams[0].members[1].net",
        "teams = [Team()]\nstart()\nfor team in teams:\n    for member in team.members:\n        loss_of(member.net)",
    ),
    "in another method": (
        "self.members[0].net",
        "class Later(Team):\n    def rest(self):\n        best_of(self.members)\nLater().run()",
    ),
}
LEFT = {
    "only named": ("net", "net = torch.nn.Linear(2, 1)\nstart()\nprint(net)"),
    "saved": ("net", "net = torch.nn.Linear(2, 1)\nstart()\nstate = net.state_dict()"),
    "only the scores are read": ("boxes[0].net", "boxes = [Member(2)]\nstart()\nfor b in boxes: print(b.score)"),
    "the scores in a function": ("boxes[0].net", "boxes = [Member(2)]\nstart()\ntable(boxes)"),
    "an index": ("nets[0]", "nets = [torch.nn.Linear(2, 1)]\nstart()\nfor i, n in enumerate(nets): abs(i)"),
}
NEVER = {
    "used before": ("net", "net = torch.nn.Linear(2, 1)\nloss_of(net)\nstart()"),
    "another of that name": ("boxes[0].net", "boxes = [Member(2)]\nstart()\nother = Member(2)\nloss_of(other.net)"),
    "another attribute": ("box.net", "box = Member(2)\nstart()\nloss_of(torch.nn.Linear(1, 1))"),
}
CASES = [
    *((*case, (True, True)) for case in USED.values()),
    *((*case, (False, True)) for case in LEFT.values()),
    *((*case, (False, False)) for case in NEVER.values()),
]


@pytest.mark.parametrize(("path", "body", "expected"), CASES, ids=[*USED, *LEFT, *NEVER])
def test_what_becomes_of_a_model(tmp_path: Path, path: str, body: str, expected: tuple[bool, bool]) -> None:
    file = tmp_path / "program.py"
    source = HEAD + "def main():\n" + textwrap.indent(body, "    ") + "\n\n\nmain()\n"
    file.write_text(source)
    seen = {}

    def start() -> None:
        frame = sys._getframe(1)
        seen.update({way.path: goes_on_with(way, frame) for way, _ in models_of(frame)})

    exec(compile(source, str(file), "exec"), {"__name__": "program", "start": start})
    assert seen[path] == expected


def test_modules_in_modules_and_libraries_are_no_models_of_their_own() -> None:
    import collections

    import torch

    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    kept = collections.UserList([torch.nn.Linear(1, 1)])
    assert [way.path for way, module in models_of(sys._getframe())] == ["net"]
    assert net is not kept

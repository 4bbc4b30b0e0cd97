"""Programs of several processes: what the order of statements tells."""

from __future__ import annotations

import textwrap

import pytest

from torchsan.check.analyse import analyse
from torchsan.check.choosing.files import Source
from torchsan.rules import all_rules

TOLD = ("TS402", "TS403", "TS406", "TS421", "TS433")
HEAD = "import torch\nimport torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\n\n\n"


def codes(text: str) -> list[tuple[str, int]]:
    return [(f.code, f.primary.line) for f in analyse(Source("train.py", text)).findings if f.certainty != "possible"]


@pytest.mark.parametrize("code", TOLD)
def test_the_examples_of_the_rules(code: str) -> None:
    rule = all_rules()[code]
    assert codes(rule.bad) == [(code, rule.bad_line())]
    assert codes(rule.good) == []


@pytest.mark.parametrize("rule", [r for r in all_rules().values() if r.family == "4"], ids=lambda r: r.code)
def test_right_programs_are_left_alone(rule: object) -> None:
    assert codes(rule.good) == []  # type: ignore[attr-defined]


WRONG = {
    "the Work has a name that nobody asks": (
        "TS403",
        """
        def f(x):
            work = dist.all_reduce(x, async_op=True)
            return x / 2
        """,
    ),
    "read between call and wait": (
        "TS402",
        """
        def f(x):
            work = dist.all_reduce(x, async_op=True)
            y = x * 2
            work.wait()
            return y
        """,
    ),
    "a copy is reduced": (
        "TS404",
        """
        def f(loss):
            dist.all_reduce(loss.clone())
            return loss / 2
        """,
    ),
    "the others have returned": (
        "TS406",
        """
        def f(x):
            if dist.get_rank() != 0:
                return x
            dist.all_reduce(x)
            return x
        """,
    ),
}
RIGHT = {
    "waited for": "def f(x):\n    work = dist.all_reduce(x, async_op=True)\n    y = x.shape\n    work.wait()\n    return x, y\n",
    "waited for by somebody else": "def f(x, works):\n    works.append(dist.all_reduce(x, async_op=True))\n    return x\n",
    "all ranks meet": (
        "def f(x, rank):\n    if rank != 0:\n        dist.barrier()\n    prepare()\n    if rank == 0:\n        dist.barrier()\n"
    ),
    "each side has its call": (
        "def f(x, rank):\n    if rank == 0:\n        dist.broadcast(x, 0)\n    else:\n        dist.broadcast(x, 0)\n"
    ),
    "a group of its own": "def f(x, rank, g):\n    if rank == 0:\n        dist.all_reduce(x, group=g)\n",
    "only rank 0 prints": "def f(x, rank):\n    dist.all_reduce(x)\n    if rank == 0:\n        print(x)\n",
    "a barrier by a sum": "def f(x):\n    dist.all_reduce(torch.zeros(1))\n    return x\n",
    "made anew after sharding": (
        "def f(net):\n    opt = torch.optim.SGD(net.parameters(), lr=1)\n    fully_shard(net)\n"
        "    opt = torch.optim.SGD(net.parameters(), lr=1)\n    return opt\n"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    code, text = WRONG[name]
    assert [c for c, _ in codes(HEAD + textwrap.dedent(text).lstrip("\n"))] == [code]


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert codes(HEAD + RIGHT[name]) == []

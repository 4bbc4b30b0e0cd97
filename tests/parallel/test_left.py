"""A rank that goes its own way: the others fail or wait in a collective that C++ makes for DDP."""

from __future__ import annotations

from pathlib import Path

from ranks import run_ranks

LEAVES = """
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
for epoch in range(5):
    model(torch.ones(2, 4)).sum().backward()  # waits
    if epoch >= 2 - rank:
        break
dist.destroy_process_group()
"""


def test_a_backward_that_another_rank_does_not_make_is_told(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(LEAVES.lstrip("\n"))
    ranks = run_ranks(path)
    assert ranks.statuses[1] == 0, ranks.outputs
    assert ranks.statuses[0] != 0, ranks.outputs
    waits = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# waits"))
    assert ranks.codes == ["TS406"]
    assert ranks.lines("TS406") == {waits}

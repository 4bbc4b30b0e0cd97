"""What `--memory` costs: a watched run with memory measured, against a watched run without.

Three runs take turns, each with a recorder of its own: watched, watched once more, and watched with memory measured.
Each begins a round as often as the others. Printed are medians of ratios to the first one, of processor time in one
thread; that of the second is what the machine adds by itself, with its quartiles, and the noise to read the other by.

"step" is the median step, what a long run comes to. "run" is everything from the start of the recorder to its end, with
the one step that is followed op by op for its peak, and so depends on how long the run is.

    python benchmarks/memory_overhead.py [--rounds N] [--steps N] [--only resnet|gpt|rnn|loop]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from overhead import gpt, loop, resnet, rnn

from torchsan.observe.recorder import Recorder

WORKLOADS = {"resnet": resnet, "gpt": gpt, "rnn": rnn, "loop": loop}
VARIANTS = {"watch": False, "again": False, "memory": True}


@dataclass
class Run:
    whole: float
    step: float
    # Backward passes that were measured, of all.
    measured: str = ""


def run(step: Callable[[], None], steps: int, *, memory: bool) -> Run:
    """One watched run."""
    gc.collect()
    began = time.process_time()
    recorder = Recorder(memory=memory)
    recorder.start()
    seconds = []
    try:
        for _ in range(steps):
            start = time.process_time()
            step()
            seconds.append(time.process_time() - start)
    finally:
        recorder.stop()
    found = Run(time.process_time() - began, statistics.median(seconds))
    if memory:
        report = recorder.report.memory
        assert report is not None
        assert report.steps, "nothing was measured"
        assert report.followed is not None, "no step was followed"
        found.measured = f"{len(report.steps)} of {report.passes}"
    return found


def compare(step: Callable[[], None], rounds: int, steps: int) -> dict[str, list[Run]]:
    run(step, 3, memory=True)  # whoever comes first has it harder
    found: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    for turn in range(rounds):
        order = list(VARIANTS.items())
        turn %= len(order)
        for name, memory in order[turn:] + order[:turn]:
            found[name].append(run(step, steps, memory=memory))
    return found


def ratios(runs: list[float], plain: list[float]) -> str:
    each = sorted(a / b for a, b in zip(runs, plain, strict=True))
    low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
    return f"{middle:6.3f} ({low:.2f}-{high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", choices=WORKLOADS)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    columns = ("step, memory", "step, again", "run, memory", "run, again")
    print(f"{'':8}{'ms a step':>10}" + "".join(f"{name:>21}" for name in columns) + f"   of {args.steps} steps")
    for name, make in WORKLOADS.items():
        if args.only not in (None, name):
            continue
        found = compare(make(), args.rounds, args.steps)
        plain = found["watch"]
        row = f"{name:8}{1000 * statistics.median(one.step for one in plain):>10.1f}"
        for part in ("step", "whole"):
            for variant in ("memory", "again"):
                mine = [getattr(one, part) for one in found[variant]]
                row += f"{ratios(mine, [getattr(one, part) for one in plain]):>21}"
        print(row, f"  measured {found['memory'][-1].measured}", flush=True)


if __name__ == "__main__":
    main()

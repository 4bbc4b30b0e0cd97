"""What `--memory` costs: a watched run with memory measured, against a watched run without.

Both are run in turn, a recorder of its own for each, in processor time of one thread. "run" is all of a run's steps,
with the one that is followed op by op for its peak; "step" is the median step, what a long run comes to.

    python benchmarks/memory_overhead.py [--rounds N] [--steps N] [--only resnet|gpt|rnn|loop]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch
from overhead import gpt, loop, resnet, rnn

from torchsan.observe.recorder import Recorder

WORKLOADS = {"resnet": resnet, "gpt": gpt, "rnn": rnn, "loop": loop}


def run(step: Callable[[], None], steps: int, *, memory: bool) -> list[float]:
    """Seconds of each step of one watched run."""
    gc.collect()
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
    if memory:
        assert recorder.report.memory is not None
        assert recorder.report.memory.steps
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", choices=WORKLOADS)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"{'':8}{'step':>8}{'run':>8}   of {args.steps} steps")
    for name, make in WORKLOADS.items():
        if args.only not in (None, name):
            continue
        step = make()
        run(step, 2, memory=True)  # whoever comes first has it harder
        runs, medians = [], []
        for turn in range(args.rounds):
            found = {
                memory: run(step, args.steps, memory=memory) for memory in ((False, True), (True, False))[turn % 2]
            }
            runs.append(sum(found[True]) / sum(found[False]))
            medians.append(statistics.median(found[True]) / statistics.median(found[False]))
        print(f"{name:8}{statistics.median(medians):>7.2f}x{statistics.median(runs):>7.2f}x", flush=True)


if __name__ == "__main__":
    main()

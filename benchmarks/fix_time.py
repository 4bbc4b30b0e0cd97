"""How long `torchsan fix` takes, and where: trials that fork from a warm process beside trials in fresh interpreters.

    python benchmarks/fix_time.py program.py [more.py …]

Prints for each program the runs, the seconds of each way, their ratio, and the seconds that the program itself took
inside each trial: the rest is starting interpreters and importing torch.
"""

from __future__ import annotations

import sys
import time

from torchsan.fix.engine import Engine
from torchsan.fix.labs import Subprocess
from torchsan.fix.source import Source
from torchsan.fix.trial import Mode, Trial


class Timed(Subprocess):
    """Adds up what the programs themselves took."""

    inside = 0.0

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        trial = super().run(changed, mode)
        Timed.inside += trial.seconds
        return trial


def measure(script: str, *, fork: bool) -> tuple[int, float, float]:
    lab = Timed(script, None, [], sandbox=True, fork=fork)
    Timed.inside = 0.0
    began = time.perf_counter()
    try:
        outcome = Engine(lab).run()
    finally:
        lab.close()
    return outcome.runs, time.perf_counter() - began, Timed.inside


def main() -> None:
    print(f"{'program':40} {'runs':>4} {'forks':>8} {'fresh':>8} {'ratio':>6}  inside trials, of forks and of fresh")
    for script in sys.argv[1:]:
        runs, forks, inside = measure(script, fork=True)
        _, fresh, inside_fresh = measure(script, fork=False)
        name = script.rpartition("/")[2][:40]
        shares = f"{inside / forks:4.0%} {inside_fresh / fresh:4.0%}"
        print(f"{name:40} {runs:4} {forks:7.1f}s {fresh:7.1f}s {fresh / forks:6.1f}  {shares}")


if __name__ == "__main__":
    main()

"""How long `torchsan fix` takes, and where: every trial beside the program's own run, without torch's import.

    python benchmarks/fix_time.py program.py [more.py …]

For each program: the trials by their kind, with the seconds of a trial as a multiple of the program's own run (both
without torch's import, and the median where a kind ran several times); the whole search as a multiple; and the same
search in fresh interpreters instead of forks.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from torchsan.fix.engine import Engine
from torchsan.fix.labs import Subprocess
from torchsan.fix.outcome import Outcome
from torchsan.fix.source import Source
from torchsan.fix.trial import Mode, Trial

ROUNDS = 3
# What an optimizer imports when it is made belongs to the import, too.
IMPORTS = "import torch, torch._dynamo"


@dataclass(slots=True)
class Timed(Subprocess):
    """Notes how long each trial took, from the outside."""

    taken: list[tuple[Mode, float]] = field(default_factory=list)

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        began = time.perf_counter()
        trial = Subprocess.run(self, changed, mode)
        self.taken.append((mode, time.perf_counter() - began))
        return trial


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], capture_output=True, check=False)
    return time.perf_counter() - began


def own_run(script: str, outcome: Outcome) -> float:
    """The mended program as python runs it, without the imports: the one with the fault may end early."""
    with tempfile.TemporaryDirectory() as folder:
        mended = os.path.join(folder, os.path.basename(script))
        shutil.copy(script, mended)
        for source in outcome.changed.values():
            with open(mended, "wb") as file:
                file.write(source.raw)
        whole = statistics.median(seconds([mended]) for _ in range(ROUNDS))
    return max(0.01, whole - statistics.median(seconds(["-c", IMPORTS]) for _ in range(ROUNDS)))


def search(script: str, *, fork: bool) -> tuple[Timed, Outcome, float]:
    lab = Timed(script, None, [], sandbox=True, fork=fork)
    began = time.perf_counter()
    try:
        outcome = Engine(lab).run()
    finally:
        lab.close()
    return lab, outcome, time.perf_counter() - began


def main() -> None:
    for script in sys.argv[1:]:
        lab, outcome, forked = search(script, fork=True)
        own = own_run(script, outcome)
        # The first trial starts an interpreter, and imports torch.
        forks = lab.taken[1:] or lab.taken
        print(f"{os.path.basename(script)}: own run {own:.2f} s; {len(lab.taken)} trials, {lab.forks} of them forks")
        for mode in dict.fromkeys(mode for mode, _ in forks):
            times = [taken for kind, taken in forks if kind == mode]
            middle = statistics.median(times)
            print(f"  {mode:14} {len(times):3} x {middle:6.2f} s = {middle / own:5.2f}")
        every = statistics.median(taken for _, taken in forks)
        print(f"  {'a trial':14}       {every:6.2f} s = {every / own:5.2f} of the program's own run")
        _, _, fresh = search(script, fork=False)
        print(
            f"  the whole search {forked:.1f} s; in fresh interpreters {fresh:.1f} s, {fresh / forked:.1f} times that"
        )


if __name__ == "__main__":
    main()

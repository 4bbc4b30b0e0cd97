"""What watching costs in instructions: plain eager and torchsan with its native part and without, under valgrind.

Other than time, the number of instructions does not depend on what else the machine does: two runs differ in the third
digit behind the point. It leaves out what caches do, which a recorder disturbs as any code does that is run in between.
A step takes fifty times as long as it should, so only a few are counted; valgrind must be installed.

    python benchmarks/instructions.py [WORKLOAD …] [--warm N] [--steps N]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import overhead

MODES = ("eager", "native", "python")
# Valgrind writes down what it has counted whenever this is called, and begins anew. Nobody else calls it.
SIGNAL = "os_getppid"


def run(names: list[str], warm: int, steps: int) -> None:
    """What valgrind looks at: every workload in every mode, with a signal before the steps that count and after."""
    import torch

    import torchsan

    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in names:
        step = overhead.WORKLOADS[name]()
        step()
        for mode in MODES:
            os.environ["TORCHSAN_NATIVE"] = "0" if mode == "python" else "1"
            with contextlib.nullcontext() if mode == "eager" else torchsan.watch():
                for _ in range(warm):
                    step()
                os.getppid()
                for _ in range(steps):
                    step()
                os.getppid()


def counts(folder: Path) -> list[int]:
    """What was counted between two signals, in order."""
    dumps = sorted(folder.glob("counted.*"), key=lambda path: int(path.suffix[1:]))
    found = []
    for path in dumps:
        totals = [line for line in path.read_text().splitlines() if line.startswith(("summary:", "totals:"))]
        found.append(int(totals[0].split()[1]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", default=["indexed", "inplace", "data", "sgd", "rnn", "adam", "steps"])
    parser.add_argument("--warm", type=int, default=80)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        run(args.workload, args.warm, args.steps)
        return 0
    with tempfile.TemporaryDirectory() as name:
        command = ["valgrind", "--tool=callgrind", f"--dump-before={SIGNAL}", f"--callgrind-out-file={name}/counted"]
        program = [sys.executable, __file__, *args.workload, f"--warm={args.warm}", f"--steps={args.steps}", "--inside"]
        done = subprocess.run([*command, *program], capture_output=True, text=True)
        found = counts(Path(name))
    if done.returncode or len(found) < 2 * len(MODES) * len(args.workload):
        print(done.stderr[-2000:], file=sys.stderr)
        return 1
    print(f"{'':8}{'eager, a step':>16}{'native':>9}{'Python':>9}")
    for number, workload in enumerate(args.workload):
        first = 2 * len(MODES) * number
        eager, native, python = found[first + 1 : first + 2 * len(MODES) : 2]
        print(f"{workload:8}{eager // args.steps:>16,}{native / eager:>9.3f}{python / eager:>9.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What watching a compiled program costs in instructions per step, under valgrind: its steps, not its compiling.

Other than time, the number of instructions does not depend on what else the machine does. Only the steps that count
are looked at by valgrind; a compiler and valgrind must be installed.

    python benchmarks/compiled_instructions.py [NAME …] [--backend aot_eager] [--warm N] [--steps N]

Besides, what dynamo has counted must be the same in both: nothing is compiled anew, and no graph breaks, because we
watch.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import compiled_overhead
from instructions import counts

MODES = ("plain", "watched")
# Requests to valgrind. Outside of it they do nothing.
REQUESTS = """
#include <callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""


def run(names: list[str], backend: str, warm: int, steps: int, folder: Path) -> None:
    """What valgrind looks at: every program in every mode."""
    import torch

    import torchsan

    valgrind = ctypes.CDLL(str(folder / "requests.so"))
    torch.set_num_threads(1)
    told = []
    for name in names:
        for mode in MODES:
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            torch.manual_seed(0)
            with torchsan.watch() if mode == "watched" else contextlib.nullcontext():
                step = compiled_overhead.WORKLOADS[name](backend)
                for _ in range(warm):
                    step()
                valgrind.begin()
                for _ in range(steps):
                    step()
                valgrind.end()
            counted = torch._dynamo.utils.counters
            told.append([dict(counted[kind]) for kind in ("frames", "graph_break", "stats")])
    (folder / "told.json").write_text(json.dumps(told))


def build(folder: Path) -> None:
    import torch

    (folder / "requests.c").write_text(REQUESTS)
    headers = Path(torch.__file__).parent / "utils" / "benchmark" / "utils" / "valgrind_wrapper"
    made = [f"-I{headers}", "-shared", "-fPIC", "-o", folder / "requests.so", folder / "requests.c"]
    subprocess.run(["cc", *made], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", default=list(compiled_overhead.WORKLOADS))
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--warm", type=int, default=80)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--functions", action="store_true", help="keep what valgrind wrote, for callgrind_annotate")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        run(args.name, args.backend, args.warm, args.steps, args.inside)
        return 0
    with contextlib.ExitStack() as stack:
        kept = tempfile.mkdtemp() if args.functions else stack.enter_context(tempfile.TemporaryDirectory())
        return measure(args, Path(kept))


def measure(args: argparse.Namespace, folder: Path) -> int:
    build(folder)
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted"]
    options = [f"--backend={args.backend}", f"--warm={args.warm}", f"--steps={args.steps}", f"--inside={folder}"]
    done = subprocess.run([*command, sys.executable, __file__, *args.name, *options], capture_output=True, text=True)
    found = counts(folder)
    if done.returncode or len(found) < len(MODES) * len(args.name):
        print(done.stderr[-2000:], file=sys.stderr)
        return 1
    told = json.loads((folder / "told.json").read_text())
    print(f"{args.backend:32}{'plain, a step':>16}{'watched':>9}  dynamo counts the same")
    for number, name in enumerate(args.name):
        plain, watched = found[2 * number : 2 * number + 2]
        same = told[2 * number] == told[2 * number + 1]
        print(f"{name:32}{plain // args.steps:>16,}{watched / plain:>9.3f}  {same}")
    if args.functions:
        print(f"per function: callgrind_annotate {folder}/counted.N")
    return 0


if __name__ == "__main__":
    sys.exit(main())

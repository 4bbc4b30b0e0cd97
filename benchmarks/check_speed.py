"""CPU seconds of `torchsan check` beside ast.parse, ruff and TorchFix: `python benchmarks/check_speed.py FOLDER`.

Parsing and checking take turns, batch by batch and several times, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from torchsan.check.choosing.files import find_files
from torchsan.check.runner import BATCH, Asked, check_batch


def cold(files: list[str], rounds: int = 3) -> tuple[float, float, float]:
    """Seconds to parse every file, to check every file, and to check them reading all of their syntax.

    Of each batch the quickest of some rounds counts. A tree of this size is checked without reading the syntax
    of what cannot hold a hazard, unless it looks broken; a small one with it.
    """
    check_batch(files[:2])
    parsing = checking = thorough = 0.0
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        texts = [Path(file).read_bytes() for file in batch]
        turns = [
            (
                seconds(lambda: parse(texts)),  # noqa: B023
                seconds(lambda: check_batch(batch, Asked(thorough=False))),  # noqa: B023
                seconds(lambda: check_batch(batch)),  # noqa: B023
            )
            for _ in range(rounds)
        ]
        parsing += min(turn[0] for turn in turns)
        checking += min(turn[1] for turn in turns)
        thorough += min(turn[2] for turn in turns)
    return parsing, checking, thorough


def parse(texts: list[bytes]) -> None:
    for text in texts:
        ast.parse(text)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def of_command(words: list[str]) -> float:
    """CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--every", type=int, default=1, help="take every Nth file")
    parser.add_argument("--torchfix-files", type=int, default=30, help="TorchFix is slow: only so many files")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    files = [f for f in find_files([args.folder]) if f.endswith(".py")][:: args.every]
    parsing, checking, thorough = cold(files)
    print(f"{len(files)} files")
    print(f"ast.parse            {parsing:8.2f} s   1.00")
    print(f"torchsan check, cold {checking:8.2f} s   {checking / parsing:.2f}")
    print(f"  and every syntax   {thorough:8.2f} s   {thorough / parsing:.2f}   (as a small tree is checked)")
    torchsan = [sys.executable, "-m", "torchsan", "check", "--format", "concise"]
    with tempfile.TemporaryDirectory() as cache:
        words = [*torchsan, "--cache-dir", cache, args.folder]
        of_command(words)
        print(f"torchsan check, warm {of_command(words):8.2f} s   (the whole folder, a process of its own)")
    print(f"torchsan, one file   {of_command([*torchsan, '--no-cache', files[len(files) // 2]]):8.2f} s")
    ruff = shutil.which("ruff", path=os.path.dirname(sys.executable)) or shutil.which("ruff")
    if ruff:
        print(f"ruff                 {of_command([ruff, 'check', '--isolated', '--no-cache', *files]):8.2f} s")
    torchfix = shutil.which("torchfix", path=os.path.dirname(sys.executable)) or shutil.which("torchfix")
    if torchfix:
        some = files[:: max(1, len(files) // args.torchfix_files)]
        seconds = of_command([torchfix, "--select=ALL", *some])
        base = cold(some)[0]
        print(f"TorchFix             {seconds:8.2f} s   {seconds / base:.0f} times ast.parse, on {len(some)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())

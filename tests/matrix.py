"""Run the whole suite on every Python and torch that can be had here: `make test-matrix`.

    python tests/matrix.py [--python EXE …] [--torch VERSION …] [--folder DIR] [-- pytest arguments]

Each pair gets an environment of its own below DIR, which is kept for the next time. Without --python every
CPython from 3.11 on that is on PATH or below ~/.pyenv is taken. A free-threaded one needs no torch: it passes if it is
refused as the docs say.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST, NEWEST = 11, 14
TELL = "import sys, sysconfig; print(*sys.version_info[:3], bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"


def _interpreters() -> list[str]:
    names = [f"python3.{minor}{suffix}" for minor in range(OLDEST, NEWEST + 1) for suffix in ("", "t")]
    found = [path for name in names if (path := shutil.which(name))]
    found += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))]
    return found


def _version(python: str) -> str | None:
    """`3.13.0`, with a `t` where threads are free; None for what is no Python of ours."""
    done = subprocess.run([python, "-c", TELL], capture_output=True, text=True)
    words = done.stdout.split()
    if done.returncode or words[0] != "3" or not OLDEST <= int(words[1]) <= NEWEST:
        return None
    return ".".join(words[:3]) + ("t" if words[3] == "True" else "")


def _environment(python: str, torch: str, folder: Path) -> Path | str:
    """The interpreter of a ready environment, or why there is none."""
    inside = folder / "bin" / "python"
    if not (folder / "ready").exists():
        steps = [
            [python, "-m", "venv", str(folder)],
            [str(inside), "-m", "pip", "install", "--quiet", "--upgrade", "pip"],
            [str(inside), "-m", "pip", "install", "--quiet", f"torch=={torch}"],
            [str(inside), "-m", "pip", "install", "--quiet", f"torch=={torch}", "-e", str(ROOT), "--group", "dev"],
        ]
        for step in steps:
            done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines()
                return f"not installed: {lines[-1] if lines else 'no reason given'}"
        (folder / "ready").touch()
    return inside


def _tested(python: Path, arguments: list[str]) -> str:
    began = time.monotonic()
    command = [str(python), "-m", "pytest", "-n", "2", "--dist", "worksteal", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) ", line)]
    counts = re.sub(r" in [\d.]+s.*|=", "", lines[-1]).strip() if lines else "no output"
    print("\n".join(failed), flush=True)
    ended = "" if done.returncode == 0 else f"failed with code {done.returncode}: "
    return f"{ended}{counts} ({time.monotonic() - began:.0f} s)"


def _refused(python: str) -> str:
    """A free-threaded Python runs no program and says why; what needs no lock is served."""

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(
            [python, "-m", "torchsan", *words], cwd=ROOT, capture_output=True, text=True, env=environment
        )

    program = "examples/residual_net.py"
    run, check = asked("run", program), asked("check", "--format", "concise", program)
    told = run.stderr.strip()
    if run.returncode != 2 or run.stdout or "free-threaded" not in told or "\n" in told:
        return f"failed: not refused in one sentence, but {run.returncode}: {told[-200:]}"
    if check.returncode != 1 or "TS101" not in check.stdout:
        return f"failed: check ended with {check.returncode}: {check.stderr.strip()[-200:]}"
    return "run refused in one sentence, check served"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=None)
    parser.add_argument("--torch", nargs="+", default=["2.13.0"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".matrix")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    args = parser.parse_args()
    rows, seen = [("python", "torch", "outcome")], set()
    for python in map(os.path.expanduser, args.python or _interpreters()):
        version = _version(python)
        if version is None or version in seen:
            continue
        seen.add(version)
        if version.endswith("t"):
            rows.append((version, "none", _refused(python)))
            continue
        for torch in args.torch:
            print(f"python {version}, torch {torch} …", flush=True)
            ready = _environment(python, torch, args.folder / f"py{version}-torch{torch}")
            rows.append((version, torch, ready if isinstance(ready, str) else _tested(ready, args.pytest)))
    for row in rows:
        print(f"{row[0]:<10} {row[1]:<10} {row[2]}")
    return int(any(row[2].startswith("failed") for row in rows[1:]))


if __name__ == "__main__":
    sys.exit(main())

"""Children of every kind are watched, one report tells of all, and their ends are clean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from resting import Rest

pytestmark = pytest.mark.slow

CHILDREN = """
import os
import subprocess
import sys

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


def forked():
    h = torch.ones(3, requires_grad=True).exp()
    h.data.mul_(2)  # forked
    h.sum().backward()


def spawned(index):
    h = torch.ones(3, requires_grad=True).exp()
    h.data.mul_(2)  # spawned
    h.sum().backward()


def pooled(index):
    h = torch.ones(3, requires_grad=True).exp()
    h.data.mul_(2)  # pooled
    h.sum().backward()
    return index


class Table(Dataset):
    def __init__(self):
        self.rows = torch.ones(4, 2)

    def __len__(self):
        return 4

    def __getitem__(self, i):
        row = self.rows[i]
        row *= 0.5  # loader
        return row


if __name__ == "__main__":
    fork = mp.get_context("fork")
    worker = fork.Process(target=forked)
    worker.start()
    worker.join()
    mp.spawn(spawned, nprocs=1)
    with fork.Pool(1) as pool:
        pool.map(pooled, [0])
    loader = DataLoader(Table(), batch_size=4, num_workers=1, persistent_workers=True)
    for _ in range(3):
        list(loader)
    pid = os.fork()
    if pid == 0:
        forked()
        os._exit(0)
    os.waitpid(pid, 0)
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
    print("codes", worker.exitcode)
"""

RANKS = """
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
h = torch.full((3,), float(rank), requires_grad=True).exp()
dist.all_reduce(h.detach())  # write
h.sum().backward()
for step in range(50):
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    dist.barrier()
    print(rank, "step", step, flush=True)
    if rank == 1 and "kill" in sys.argv:
        os.kill(os.getpid(), 9)
    if rank == 1 and "segfault" in sys.argv:
        import ctypes

        ctypes.string_at(0)
    if "short" in sys.argv:
        break
if "hang" in sys.argv and rank == 0:
    dist.all_reduce(x)  # stuck
"""


# No machine is that slow: what takes longer will never end.
HANGS = 1800


def write(folder: Path, source: str) -> Path:
    path = folder / "train.py"
    path.write_text(source.lstrip("\n"))
    return path


def line(path: Path, mark: str) -> int:
    return next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text.endswith(f"# {mark}"))


def torchsan(*args: object, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "torchsan", *map(str, args)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=HANGS, env=environment, **more)


LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")


def test_children_of_every_kind_are_watched(tmp_path):
    path = write(tmp_path, CHILDREN)
    done = torchsan("run", "--strict", "--format", "json", "--output", "report.json", "train.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "codes 0\n"
    data = json.loads((tmp_path / "report.json").read_text())
    found = {(f["code"], next(s for s in f["spans"] if s["primary"])["line"]) for f in data["findings"]}
    assert found == {
        ("TS201", line(path, "forked")),
        ("TS201", line(path, "spawned")),
        ("TS201", line(path, "pooled")),
        ("TS205", line(path, "loader")),
    }
    assert {process["role"] for process in data["processes"]} >= {"main", "forked", "spawned"}
    assert any("could not be followed" in note and "-I" in note for note in data["summary"]["remarks"])
    assert "internal error" not in done.stderr


def test_what_inductor_starts_for_itself_is_no_part_of_the_program(tmp_path):
    """It asks a Python of its own, with a path of its own, what the processor can do."""
    text = """
        import os, subprocess, sys
        import torch._inductor.cpu_vec_isa as isa

        environment = {"PATH": os.environ["PATH"]}
        exec("def probe(run, *a, **k): return run(*a, **k)", vars(isa))
        command = [sys.executable, "-c", "pass"]
        print(isa.probe(subprocess.run, command, env=environment).returncode)
        if len(sys.argv) > 1:
            print(subprocess.run(command, env=environment).returncode)
    """
    write(tmp_path, textwrap.dedent(text))
    for more, told in ((), False), (("own",), True):
        done = torchsan("run", "--format", "json", "--output", "report.json", "train.py", *more, cwd=tmp_path)
        assert done.stdout == "0\n" * (1 + told), done.stderr
        remarks = json.loads((tmp_path / "report.json").read_text())["summary"].get("remarks", [])
        assert any("could not be followed" in remark for remark in remarks) is told


def test_the_ranks_of_a_launcher_give_one_report(tmp_path):
    path = write(tmp_path, RANKS)
    done = torchsan("run", "--strict", "--output", "report.txt", *LAUNCH, "short", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    text = (tmp_path / "report.txt").read_text()
    assert text.count("error[TS201]") == 1
    assert "(on ranks 0, 1)" in text
    assert f"train.py:{line(path, 'write')}" in text


def test_a_launcher_of_watched_ranks_gives_one_report(tmp_path):
    write(tmp_path, RANKS)
    command = [sys.executable, "-W", "ignore", *LAUNCH[:-1], "-m", "torchsan", "run", "--run-dir", "records"]
    command += ["--format", "json", "--output", "report.json", "train.py", "short"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "report.json").read_text())
    assert [finding["ranks"] for finding in data["findings"]] == [[0, 1]]
    assert [process["outcome"] for process in data["processes"]] == ["ended", "ended"]
    again = torchsan("merge", "--format", "json", "records", cwd=tmp_path)
    assert again.returncode == 1
    assert json.loads(again.stdout)["findings"] == data["findings"]


@pytest.mark.parametrize("how", ["kill", "segfault"])
def test_the_report_outlives_a_rank(tmp_path, how):
    write(tmp_path, RANKS)
    done = torchsan("run", "--format", "json", "--output", "report.json", *LAUNCH, how, cwd=tmp_path)
    assert done.returncode != 0
    data = json.loads((tmp_path / "report.json").read_text())
    assert [finding["ranks"] for finding in data["findings"] if finding["code"] == "TS201"] == [[0, 1]]
    outcomes = {process["rank"]: process["outcome"] for process in data["processes"] if process["rank"] is not None}
    assert outcomes[1] == "died without a word"


def test_the_report_outlives_the_process_itself(tmp_path):
    (tmp_path / "train.py").write_text(
        "import ctypes, torch\n"
        "h = torch.ones(3, requires_grad=True).exp()\n"
        "h.data.mul_(2)\n"
        "h.sum().backward()\n"
        "ctypes.string_at(0)\n"
    )
    done = torchsan("run", "--format", "concise", "train.py", cwd=tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert "train.py:3:1: error[TS201]" in done.stderr


def test_a_run_that_is_told_to_end_still_reports(tmp_path):
    path = write(tmp_path, RANKS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torchsan",
        "run",
        "--output",
        "report.txt",
        *LAUNCH,
        "short",
        "hang",
    ]
    running = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    seen = [running.stdout.readline(), running.stdout.readline()]
    assert all("step 0" in text for text in seen)
    rest = Rest()
    while running.poll() is None and rest.look([running.pid]) < 2.0:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    running.wait(HANGS)
    report, until = tmp_path / "report.txt", time.monotonic() + HANGS
    while not (report.exists() and report.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    text = report.read_text()
    assert "error[TS201]" in text
    # Where the rank stood that was left waiting.
    assert "[TS406]" in text
    assert f"train.py:{line(path, 'stuck')}" in text


@pytest.mark.parametrize("option", [("--fail-fast",), ("--steps", "3")], ids=["fail-fast", "steps"])
def test_all_ranks_stop_without_a_traceback(tmp_path, option):
    write(tmp_path, RANKS)
    done = torchsan("run", *option, *LAUNCH, cwd=tmp_path)
    assert "Traceback" not in done.stderr, done.stderr
    assert "error[TS201]" in done.stderr
    assert done.returncode == (1 if option[0] == "--fail-fast" else 0)
    assert "step 10" not in done.stdout


FORKING = """
import sys

import torch
import torch.multiprocessing as mp


def child():
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step in range(9):
        h = weight.exp()
        h.data.mul_(2)  # write
        h.sum().backward()
        optimizer.step()
        print("step", step, flush=True)


worker = mp.get_context("fork").Process(target=child)
worker.start()
worker.join()
print("code", worker.exitcode)
"""


@pytest.mark.parametrize(
    ("option", "steps"), [(("--fail-fast",), 0), (("--steps", "3"), 2)], ids=["fail-fast", "steps"]
)
def test_a_forked_child_stops_without_a_traceback(tmp_path, option, steps):
    write(tmp_path, FORKING)
    done = torchsan("run", *option, "train.py", cwd=tmp_path)
    assert "Traceback" not in done.stderr, done.stderr
    assert "error[TS201]" in done.stderr
    assert done.stdout == "".join(f"step {number}\n" for number in range(steps)) + "code 0\n"

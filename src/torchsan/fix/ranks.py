"""Trials on several ranks: the number that the program is started with, one process each, on this machine.

`torchsan fix -m torch.distributed.run --nproc-per-node 2 train.py`: the launcher is not run; a process that has
imported torch forks the ranks, as many as it was told to start. What they did is laid together into one trial, so that
an edit is proved only where every rank agrees.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from dataclasses import dataclass, replace

from torchsan.errors import UsageError
from torchsan.fix.child import Request
from torchsan.fix.labs import environment
from torchsan.fix.source import Source
from torchsan.fix.trial import Mode, Trial, Value
from torchsan.fix.warm import Warm

LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
# What the healed run on ranks does otherwise, by the code of the fault: it is the truth for these.
HEALED_ON_RANKS = {
    "TS401": "the run in which collectives are given whole memory and copied back",
    "TS402": "the run in which every collective is waited for at once",
    "TS403": "the run in which every collective is waited for at once",
    "TS410": "the run in which DDP makes its replicas equal once more before the first forward",
    "TS421": "the run in which the optimizer is given the sharded parameters",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launcher was asked to start."""

    world: int
    script: str
    arguments: list[str]


def launched(words: list[str]) -> Launch | None:
    """The ranks that `-m torch.distributed.run …` would start here; None for any other module."""
    if not words or words[0] not in LAUNCHERS:
        return None
    world, at = 1, 1
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        name = name.lstrip("-").replace("_", "-")
        if name in ("m", "module", "no-python"):
            raise UsageError("torchsan fix starts ranks of a script, not of a module")
        if not equals and name not in ("standalone", "redirects", "tee") and at + 1 < len(words):
            at += 1
            value = words[at]
        if name == "nproc-per-node":
            world = _count(value)
        elif name == "nnodes" and value not in ("1", "1:1"):
            raise UsageError("torchsan fix runs all ranks on this machine: --nnodes must be 1")
        at += 1
    if at >= len(words):
        raise UsageError("name the script that the ranks run")
    return Launch(world, words[at], words[at + 1 :])


def _count(text: str) -> int:
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(f"--nproc-per-node {text}: torchsan fix needs a number of ranks")


@dataclass(frozen=True, slots=True)
class RanksOrder:
    """A trial: each rank leaves its answer, its output and its journal in the folder."""

    request: Request
    world: int
    folder: str
    cwd: str
    timeout: float


class Ranks:
    """Runs a script on so many ranks, in forks of a process that has imported torch."""

    def __init__(
        self, launch: Launch, limit: int | None, timeout: float, *, sandbox: bool = False, warm: Warm | None = None
    ) -> None:
        self.launch = launch
        self.limit = limit
        self.timeout = timeout
        self.sandbox = sandbox
        self.runs = 0
        self.forks = 0
        self._warm = warm

    def run(self, changed: dict[str, Source], mode: Mode) -> Trial:
        if not hasattr(os, "fork"):
            raise UsageError("fixes on several ranks need a system that can fork")
        if self._warm is None:
            self._warm = Warm(environment(), "torchsan.fix.ranks_child")
        self.runs += 1
        self.forks += 1
        files = {path: source.raw for path, source in changed.items()}
        script = os.path.abspath(self.launch.script)
        request = Request(mode, self.limit, script, None, self.launch.arguments, files)
        scratch = tempfile.mkdtemp(prefix="torchsan-fix-")
        try:
            cwd = os.path.join(scratch, "work") if self.sandbox else os.getcwd()
            os.makedirs(cwd, exist_ok=True)
            done = self._warm.run(RanksOrder(request, self.launch.world, scratch, cwd, self.timeout))
            if done is None:
                raise UsageError("the ranks could not be started")
            return together(scratch, self.launch.world, timed_out=done.timed_out, timeout=self.timeout)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def close(self) -> None:
        if self._warm is not None:
            self._warm.close()
            self._warm = None


def together(folder: str, world: int, *, timed_out: bool, timeout: float) -> Trial:
    """One trial of the answers of all ranks and of what their comparison tells."""
    from torchsan.fix.recording import with_full_paths
    from torchsan.processes.merging import merge
    from torchsan.processes.reading import read_folder

    whole = Trial(ranks=world)
    for rank in range(world):
        one = _answer(folder, rank)
        whole.passes += one.passes
        whole.steps += one.steps
        whole.kept += one.kept
        whole.slopes += one.slopes
        whole.ends += [Value(v.kind, f"rank {rank}: {v.name}", v.value) for v in one.ends]
        whole.printed += one.printed
        whole.output += one.output
        whole.aliases.update(one.aliases)
        for mine, theirs in ((whole.ran, one.ran), (whole.again, one.again)):
            for path, places in theirs.items():
                mine.setdefault(path, set()).update(places)
        # A layer that ran on one rank has run.
        whole.idle = [name for name in whole.idle if name in one.idle] if rank else list(one.idle)
        whole.error = whole.error or one.error
        whole.explained = whole.explained or one.explained
        whole.status = whole.status or one.status
        whole.exit_code = whole.exit_code or one.exit_code
        whole.stopped = whole.stopped or one.stopped
        whole.seconds = max(whole.seconds, one.seconds)
    report = merge(read_folder(folder))
    whole.findings = [with_full_paths(replace(finding, fixes=())) for finding in report.findings]
    whole.troubles = list(report.notes)
    if timed_out:
        whole.timed_out = True
        whole.error = whole.error or f"the ranks did not end within {timeout:.0f} seconds"
    return whole


def _answer(folder: str, rank: int) -> Trial:
    output = ""
    try:
        with open(os.path.join(folder, f"{rank}.out"), encoding="utf-8", errors="replace") as file:
            output = file.read()
        with open(os.path.join(folder, f"{rank}.answer"), "rb") as answer:
            trial: Trial = pickle.load(answer)
    except (OSError, EOFError, pickle.PickleError):
        last = output.strip().splitlines()[-1:] or ["killed"]
        trial = Trial(error=f"rank {rank} ended without an answer ({last[0]})", status=1)
    trial.output = output
    return trial

"""`python -m torchsan.fix.ranks_child`: imports torch once, and forks the ranks of each trial that it is ordered."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys
import threading
import time
from typing import Any

from torchsan.fix.ranks import RanksOrder
from torchsan.fix.recording import Recording
from torchsan.fix.trial import HEALED
from torchsan.fix.warm import Done, import_all

# A rank that is left alone is told to end after so long, and so long later it is killed.
ALONE, GRACE = 3.0, 3.0
IMPORTS = (
    *("torch", "torch.distributed", "torch._dynamo", "torchsan.observe.recorder", "torchsan.fix.tape"),
    *("torchsan.fix.recording", "torchsan.fix.ranks_healed", "torchsan.processes.journal"),
)


class RankRecording(Recording):
    """A rank also keeps the records by which ranks are compared, and is healed in what ranks do to each other."""

    journal: Any = None
    _ranks_healed: Any = None

    def start(self, *, code: Any = None, root: str = "") -> None:
        opened, ours = self._outlets.opened, self.journal.folder
        # Our own records are no files of the program's.
        self._outlets.opened = lambda path: None if path.startswith(ours) else opened(path)  # type: ignore[method-assign]
        if self.mode == "slopes":
            self.mode = "lines"  # it takes forks, which a group of processes does not survive
        if self.mode in HEALED:
            from torchsan.fix.ranks_healed import RanksHealed

            # Before all others: what they see of a step is the healed one.
            self._ranks_healed = RanksHealed()
            self._ranks_healed.start()
        super().start(code=code, root=root)

    def _start_watched(self, code: Any) -> None:
        super()._start_watched(code)
        self._recorder.journal = self.journal

    def _finish(self, error: BaseException | None) -> None:
        super()._finish(error)
        if self._ranks_healed is not None:
            self._ranks_healed.stop()
        self.journal.watching("")
        self.journal.end("ended" if error is None else f"failed with {type(error).__name__}", self.report)


def serve() -> None:
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    silent = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(silent, standard)
    import_all(IMPORTS)
    gc.freeze()
    while True:
        try:
            order: RanksOrder = pickle.load(orders)
        except EOFError:
            return
        done = _run(order) if threading.active_count() == 1 else Done(forked=False)
        pickle.dump(done, answers)
        answers.flush()


def _run(order: RanksOrder) -> Done:
    port = _free_port()
    ranks = []
    for rank in range(order.world):
        pid = os.fork()
        if not pid:
            _become(order, rank, port)
        ranks.append(pid)
    return _wait(ranks, order.timeout)


def _wait(ranks: list[int], timeout: float) -> Done:
    """As a launcher does: when one rank fails, the others are told to end."""
    statuses: dict[int, int] = {}
    began, failed, told = time.monotonic(), 0.0, 0.0
    late = False
    while len(statuses) < len(ranks):
        for pid in ranks:
            ended, status = os.waitpid(pid, os.WNOHANG) if pid not in statuses else (0, 0)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        now = time.monotonic()
        if any(statuses.values()) and not failed:
            failed = now
        late = late or now - began > timeout
        if not told and (late or (failed and now - failed > ALONE)):
            told = now
            _signal(ranks, statuses, signal.SIGTERM)
        elif told and now - told > GRACE:
            _signal(ranks, statuses, signal.SIGKILL)
        time.sleep(0.01)
    return Done(True, next((status for status in statuses.values() if status), 0), timed_out=late)


def _signal(ranks: list[int], statuses: dict[int, int], number: int) -> None:
    for pid in ranks:
        if pid not in statuses:
            os.kill(pid, number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _become(order: RanksOrder, rank: int, port: int) -> None:
    status = 1
    try:
        gc.unfreeze()
        world = str(order.world)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GROUP_RANK="0", TORCHELASTIC_RUN_ID="fix")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        output = os.open(os.path.join(order.folder, f"{rank}.out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(order.cwd)
        _answer(order, rank)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _answer(order: RanksOrder, rank: int) -> None:
    import torch

    from torchsan.fix.child import perform
    from torchsan.processes.journal import Journal

    torch.set_num_threads(1)
    RankRecording.journal = Journal(order.folder, "rank")
    trial = perform(order.request, RankRecording)
    with open(os.path.join(order.folder, f"{rank}.answer"), "wb") as file:
        pickle.dump(trial, file)
    if trial.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    from torchsan.fix import ranks_child

    # Under its own name, so that orders unpickle to the same classes.
    ranks_child.serve()

"""The helper that ends hanging ranks: what sleeps rests, what works or waits for a processor does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from resting import TOLD, Rest

pytestmark = pytest.mark.skipif(not TOLD, reason="this system does not tell which threads sleep")

ASLEEP = "print(flush=True); import time; time.sleep(3600)"
AT_WORK = "print(flush=True)\nwhile True: pass"
ABOVE = "import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"
POLLING = "import threading, time; threading.Thread(target=exec, args=({code!r},)).start(); time.sleep(3600)"


@pytest.fixture
def begun() -> Iterator[Callable[[str], int]]:
    with ExitStack() as stack:

        def begin(code: str) -> int:
            command = [sys.executable, "-c", code]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            stack.enter_context(process)
            stack.callback(_end, process)
            assert process.stdout is not None
            process.stdout.readline()
            return process.pid

        yield begin


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "code",
    [ASLEEP, ABOVE.format(below=ASLEEP), POLLING.format(code=AT_WORK)],
    ids=["itself", "and its child", "beside a thread of a backend"],
)
def test_what_sleeps_comes_to_rest(begun, code):
    pid, rest = begun(code), Rest()
    while rest.look([pid]) < 0.3:
        time.sleep(0.02)


@pytest.mark.parametrize("code", [AT_WORK, ABOVE.format(below=AT_WORK)], ids=["itself", "its child"])
def test_what_works_never_rests(begun, code):
    working, sleeping, rest = begun(code), begun(ASLEEP), Rest()
    for _ in range(20):
        assert rest.look([sleeping, working]) == 0.0
        time.sleep(0.02)

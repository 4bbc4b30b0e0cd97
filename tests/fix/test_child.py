"""What a trial waits for when the program has ended."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from torchsan.fix.child import AtExit


def test_work_that_was_handed_to_a_pool_is_done_and_the_pool_ends() -> None:
    done: list[int] = []
    pools: list[ThreadPoolExecutor] = []
    go = threading.Event()

    def work(number: int) -> None:
        go.wait()
        done.append(number)

    def program() -> int:
        pools.append(ThreadPoolExecutor(2))
        for number in range(3):
            pools[0].submit(work, number)
        go.set()
        return 7

    before = set(threading.enumerate())
    assert AtExit().after(program) == 7
    assert sorted(done) == [0, 1, 2]
    assert set(threading.enumerate()) <= before
    # Other pools of the process go on as they were.
    with ThreadPoolExecutor(1) as later:
        assert later.submit(lambda: 3).result() == 3


def test_threads_that_were_there_before_are_not_waited_for() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        AtExit().after(lambda: None)
        assert thread.is_alive()
    finally:
        go.set()
        thread.join()

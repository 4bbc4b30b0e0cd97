"""A copy of the process at the start of a pass, which forks once for every question about the loss."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

import torch


@dataclass(frozen=True, slots=True)
class Question:
    """Move these leaves by these amounts, each in this call: what is the loss of this pass?

    Steps on the way leave parameters at the values of the first process: gradients take them as given.
    """

    moves: dict[int, tuple[int, torch.Tensor]]
    at: int
    steps: dict[int, list[torch.Tensor]]


class Asking(Protocol):
    """Who forks: it goes on with the program in a process that answers a question."""

    def leave(self) -> None: ...

    def become(self, question: Question, answer: Callable[[float], NoReturn]) -> None: ...


class Twin:
    """A copy of the process at the start of a pass, and the pipes to it."""

    def __init__(self, pid: int, ask: int, answer: int) -> None:
        self._pid = pid
        self._ask = os.fdopen(ask, "wb")
        self._answer = os.fdopen(answer, "rb")

    @classmethod
    def forked(cls, meter: Asking) -> Twin | None:
        """In the first process the twin; in a process that a question made, nothing: it goes on with the program."""
        sys.stdout.flush()
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        pid = os.fork()
        if pid:
            os.close(asked)
            os.close(answered)
            return cls(pid, ask, answer)
        os.close(ask)
        os.close(answer)
        meter.leave()
        _serve(meter, asked, answered)
        return None

    def ask(self, question: Question) -> float:
        pickle.dump(question, self._ask)
        self._ask.flush()
        return float(pickle.load(self._answer))

    def close(self) -> None:
        self.forget()
        os.waitpid(self._pid, 0)

    def forget(self) -> None:
        for file in (self._ask, self._answer):
            with contextlib.suppress(OSError):
                file.close()


def _serve(meter: Asking, asked: int, answered: int) -> None:
    """Wait for questions; each is answered by a child, in which alone this function returns."""
    with os.fdopen(asked, "rb") as questions, os.fdopen(answered, "wb") as answers:
        while True:
            try:
                question = pickle.load(questions)
            except (EOFError, OSError):
                os._exit(0)
            inner, outer = os.pipe()
            pid = os.fork()
            if not pid:
                break
            os.close(outer)
            with os.fdopen(inner, "rb") as told:
                text = told.read()
            os.waitpid(pid, 0)
            pickle.dump(float(text or b"nan"), answers)
            answers.flush()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)

    def answer(value: float) -> NoReturn:
        os.write(outer, repr(value).encode())
        os._exit(0)

    meter.become(question, answer)

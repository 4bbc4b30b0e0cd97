"""How the program runs: functions that only ask whether it is being captured, and branches for use without training."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from torchsan.check.modelling.names import RUN_QUESTIONS
from torchsan.check.reading.program import FunctionInfo, Program

# Parts of names that say that a model is used, tested or captured, and that it is trained.
_USED = re.compile(r"(?<![a-z])(?:infer|eval|test|export|onnx|tracing|deploy|script|predict)", re.I)
_TRAINED = re.compile(r"(?<![a-z])train", re.I)


@lru_cache(maxsize=4096)
def answer_of(info: FunctionInfo) -> bool | None:
    """What a function returns that asks how the program runs, by one way or another; None for any other function."""
    program = info.program
    if program is None or isinstance(info.node, ast.Lambda):
        return None
    returned = [n.value for n in ast.walk(info.node) if isinstance(n, ast.Return) and n.value is not None]
    asked = [_asks(value, program) for value in returned]
    answers = {bool(answer) for answer in asked if answer is not None}
    if len(answers) != 1:
        return None
    answer = answers.pop()
    # The other ways out must be the same question in other words, or the same answer.
    rest = [value for value, known in zip(returned, asked, strict=True) if known is None]
    return answer if all(_same(value, answer, program) for value in rest) else None


def _asks(node: ast.expr, program: Program) -> bool | None:
    """The answer to a question about the run; None where an expression is none."""
    if isinstance(node, ast.Call):
        name = program.dotted(node.func)
        return bool(RUN_QUESTIONS[name]) if name in RUN_QUESTIONS else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        below = _asks(node.operand, program)
        return None if below is None else not below
    if not isinstance(node, ast.BoolOp):
        return None
    asked = [_asks(value, program) for value in node.values]
    stop = isinstance(node.op, ast.Or)
    if stop in asked:
        return stop
    rest = [value for value, known in zip(node.values, asked, strict=True) if known is None]
    known = len(rest) < len(asked) and all(_same(value, not stop, program) for value in rest)
    return (not stop) if known else None


def _same(node: ast.expr, answer: bool, program: Program) -> bool:
    """Whether an expression is this answer, or torch's own to something that it is asked."""
    if isinstance(node, ast.Constant):
        return bool(node.value) is answer
    if isinstance(node, ast.Compare):
        node = node.left
    return isinstance(node, ast.Call) and program.dotted(node.func).startswith("torch.")


def for_use(condition: str, answer: bool) -> bool:
    """Whether a branch is, by the words of its test, for models that are used, tested or captured: not for training."""
    while condition.startswith("not "):
        condition, answer = condition[4:], not answer
    if _TRAINED.search(condition):
        return not answer
    if " not " in condition or "!=" in condition:
        return False
    return answer and _USED.search(condition) is not None

"""What is read behind a statement, by the text of the expression."""

from __future__ import annotations

import ast

import pytest

from torchsan.observe.expressions import File
from torchsan.observe.holders.dotted import conditional_stores, read_behind

BEHIND = {
    "def f(batch):\n    out = g(batch['x'])\n    return out - batch['x']": 3,
    "def f(batch):\n    out = g(batch['x'])\n    return out - batch['y']": None,
    "def f(batch):\n    out = g(batch['x'])\n    batch = h()\n    return batch['x']": None,
    "def f(batch):\n    out = g(batch['x'])\n    batch['x'] = out\n    return batch['x']": None,
    "def f(xs, i):\n    out = g(xs[i])\n    i += 1\n    return out - xs[i]": None,
    "def f(a, k):\n    if k:\n        out = g(a.x)\n    else:\n        out = a.x + 1\n    return out": None,
    "def f(a, k):\n    if k:\n        out = g(a.x)\n    else:\n        out = 1\n    return out + a.x": 6,
    "def f(a):\n    out = g(a.x)\n    return out, a.x.shape": None,
}


@pytest.mark.parametrize("text", BEHIND)
def test_reads_behind_a_call(text):
    file = File(text)
    call = next(n for n in ast.walk(file.tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "g")
    found = read_behind(file, call, ast.unparse(call.args[0]))
    assert (found.lineno if found is not None else None) == BEHIND[text]


def test_stores_on_a_condition_of_their_own():
    text = "def f(self):\n    new = self.at\n    new += 1\n    if g(new):\n        self.at = new\n    self.last = new"
    file = File(text)
    write = next(n for n in ast.walk(file.tree) if isinstance(n, ast.AugAssign))
    assert [ast.unparse(statement) for statement, _, _ in conditional_stores(file, write)] == ["self.at = new"]

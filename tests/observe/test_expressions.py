"""What the source says at a place."""

from __future__ import annotations

import ast
import textwrap

import pytest

from torchsan.observe import expressions as syntax


def parse(source: str) -> syntax.File:
    return syntax.File(textwrap.dedent(source).strip("\n"))


def statement(file: syntax.File, line: int) -> ast.stmt:
    return next(n for n in ast.walk(file.tree) if isinstance(n, ast.stmt) and n.lineno == line)


WRITTEN = {
    "h += r": "h",
    "self.state *= 2": "self.state",
    "v[i] = 0": "v",
    "a.b[0][1:] = x": "a.b",
    "x.mul_(2)": "x",
    "x.mul_(a).add_(b)": "x",
    "x.data.clamp_(0)": "x",
    "x.detach()[2:].zero_()": "x",
    "torch.relu_(x)": "x",
    "F.relu(x, inplace=True)": "x",
    "nn.init.zeros_(self.w)": "self.w",
    "torch.add(a, b, out=c)": "c",
    "p.data = t": "p",
    "y = x.mul(2)": None,
    "F.relu(x)": None,
    "f(x)": None,
}


@pytest.mark.parametrize(("source", "name"), WRITTEN.items())
def test_written_expression(source, name):
    file = parse(source)
    node = file.tree.body[0]
    found = syntax.written_expression(node.value if isinstance(node, ast.Expr) else node, file)
    assert (ast.unparse(found) if found is not None else None) == name


READ_AGAIN = {
    "y = f(x)\nz = x + y": 2,
    "y = f(x)\nx = y": None,
    "x = f(x)\nz = x": None,
    "y = f(x)\nreturn y\nz = x": None,
    "y = f(x)\nif y:\n    z = x": 3,
    "y = f(x)\ndel x": None,
    "y = f(x)": None,
}


@pytest.mark.parametrize(("body", "line"), READ_AGAIN.items())
def test_read_again(body, line):
    file = parse("def g(x):\n" + textwrap.indent(body, "    "))
    found = syntax.read_again(file, file.tree.body[0].body[0], "x")
    assert (found.lineno - 1 if found is not None else None) == line


def test_read_again_climbs_out_of_branches_but_not_of_loops():
    file = parse("def g(x, c):\n    if c:\n        y = f(x)\n    return x")
    assert syntax.read_again(file, statement(file, 3), "x").lineno == 4
    file = parse("def g(x, c):\n    for _ in c:\n        y = f(x)\n    return x")
    assert syntax.read_again(file, statement(file, 3), "x") is None


def test_origin_goes_through_zip_and_enumerate():
    file = parse(
        """
        def fit(model):
            anchor = list(model.parameters())
            for i, (w, old) in enumerate(zip(model.parameters(), anchor)):
                d = w - old
        """
    )
    found = syntax.origin(file, statement(file, 4), "old")
    assert found is not None
    assert found[0].lineno in (2, 3)


def test_columns_count_characters():
    file = parse("été = f(ü); x += 1")
    node = next(n for n in ast.walk(file.tree) if isinstance(n, ast.AugAssign))
    from torchsan.model import Place

    place = file.place(node, Place("x.py", 1))
    assert (place.column, place.end_column) == (13, 19)
    assert file.at(place) is node

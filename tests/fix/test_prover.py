"""The prover broken one comparison at a time: for each there are two programs that only this comparison tells apart."""

from __future__ import annotations

import pytest

from torchsan.fix import compare as comparing
from torchsan.fix.compare import CHECKS, How, compare, restless, told
from torchsan.fix.evidence import Evidence
from torchsan.fix.proof import Case
from torchsan.fix.source import Source
from torchsan.fix.trial import WATCHED, Digest, Pass, Slope, Slopes, Trial
from torchsan.model import Finding, Span

START = """
import torch
layer = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.5)
"""
STEP = """
optimizer.zero_grad()
layer(torch.ones(2, 3)).sum().backward()
optimizer.step()
"""
# By comparison: a program, and another one that differs in nothing else.
PAIRS: dict[str, tuple[str, str]] = {
    "passes": (STEP, STEP + "torch.ones(2, requires_grad=True).sum().backward()"),
    "losses": (
        "w = torch.ones(2, requires_grad=True)\n(w * 2).sum().backward()\ndel w",
        "w = torch.ones(2, requires_grad=True)\n(w * 2 + 1).sum().backward()\ndel w",
    ),
    "leaves": (
        "a = torch.zeros(2, requires_grad=True)\na.sum().backward()\ndel a",
        "a, b = torch.zeros(2, requires_grad=True), torch.zeros(5, requires_grad=True)\n(a.sum() + b.sum()).backward()"
        "\ndel a, b",
    ),
    "gradients": (
        "w = torch.zeros(2, requires_grad=True)\n(w * 2).sum().backward()\ndel w",
        "w = torch.zeros(2, requires_grad=True)\n(w * 3).sum().backward()\ndel w",
    ),
    "steps": (
        "w = torch.zeros(2)\nopt = torch.optim.SGD([w], lr=0.0)\nw.grad = torch.ones(2)\nopt.step()\ndel w, opt",
        "w = torch.zeros(2)\nopt = torch.optim.SGD([w], lr=0.0)\nw.grad = torch.zeros(2)\nopt.step()\ndel w, opt",
    ),
    # Modules that no variable holds.
    "parameters": (
        "(lambda m: m(torch.ones(3)))(torch.nn.Linear(3, 1))",
        "(lambda m: (m(torch.ones(3)), m.weight.data.add_(1)))(torch.nn.Linear(3, 1))",
    ),
    "buffers": (
        "(lambda m: m.eval()(torch.ones(2, 3)))(torch.nn.BatchNorm1d(3))",
        "(lambda m: (m.eval()(torch.ones(2, 3)), m.running_mean.add_(1)))(torch.nn.BatchNorm1d(3))",
    ),
    "texts": (
        "import sys\nprint('one', file=sys.stderr)",
        "import sys\nprint('two', file=sys.stderr)",
    ),
    "optimizer state": (STEP, STEP + "optimizer.param_groups[0]['lr'] = 5.0"),
    "variables": ("kept = torch.zeros(3)", "kept = torch.ones(3)"),
    "printed": ("print('loss', 1.25)", "print('loss', 1.5)"),
    "exit code": ("import sys\nsys.exit(0)", "import sys\nsys.exit(3)"),
    "errors": ("x = 1", "x = 1\nraise ValueError('late')"),
}


@pytest.fixture
def run(tmp_path, lab):
    def trial(source: str) -> Trial:
        path = tmp_path / "program.py"
        path.write_text(START + source)
        return lab(path, 10).run({}, "watch")

    return trial


def test_every_comparison_has_its_pair():
    assert set(PAIRS) | {"results"} == set(CHECKS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_prover_without_this_comparison_is_noticed(name, run, monkeypatch):
    one, other = (run(source) for source in PAIRS[name])
    if name == "exit code":
        # A script that calls sys.exit inside a test ends with an exception: the command line has the number.
        one, other = Trial(exit_code=0), Trial(exit_code=3)
    assert not compare(one, one, How())
    assert compare(one, other, How())
    monkeypatch.setattr(comparing, "CHECKS", {key: check for key, check in CHECKS.items() if key != name})
    assert not compare(one, other, How()), "something else would have noticed: the pair does not test this comparison"


def test_what_a_function_returns_is_compared(monkeypatch):
    import torch

    from torchsan.fix.live import Live

    one, other = (Live(function, (), {}, 5).run({}, "watch") for function in (lambda: 1.0, lambda: torch.ones(2)))
    assert compare(one, other, How())
    monkeypatch.setattr(comparing, "CHECKS", {key: check for key, check in CHECKS.items() if key != "results"})
    assert not compare(one, other, How())


def test_what_never_stays_the_same_is_left_out():
    one, two = Trial(printed="took 1.5 s\nloss 2\n"), Trial(printed="took 9.25 s\nloss 2\n")
    assert compare(one, two, How())
    known = restless(one, two)
    assert not compare(one, two, How(restless=known))
    assert compare(one, Trial(printed="took 7 s\nloss 3\n"), How(restless=known))


def test_words_tell_how_much_was_compared(run):
    assert told(run(STEP), "another run") == (
        "1 loss, 2 gradients, 2 parameters, 11 values of optimizer state, 8 variables and the exit code over 1 backward "
        "pass equal another run"
    )


# -- evidence ---------------------------------------------------------------------------------------------------

SOURCE = Source("/nowhere/program.py", b"import torch\nkept = []\nx = torch.ones(2)\nkept.append(x)\nx.add_(1)\n")


def finding(code: str) -> Finding:
    spans = (
        Span(SOURCE.path, 4, 1, 4, 15, "aliased", "kept here", primary=True),
        Span(SOURCE.path, 5, 1, 5, 10, "mutated", "written here"),
    )
    return Finding(code, "name", "warning", "proved", "message", spans)


def weigh(code: str, before: Trial, after: Trial, runs: dict[str, Trial]):
    """The verdict where the runs that are asked for come out as given, and the candidate is the same each time."""

    def run(changed, mode):
        own = SOURCE.path in changed and changed[SOURCE.path] is SOURCE
        return after if own and mode in WATCHED else runs["watch" if mode in WATCHED else mode]

    evidence = Evidence(run, lambda path: SOURCE, {})
    return evidence.weigh(Case(finding(code), before, None, after, SOURCE, SOURCE))


RIGHT, WRONG = Trial(printed="1\n"), Trial(printed="2\n")


def test_holders_prove_only_what_equals_their_run_and_changes_something():
    kept = Trial(printed="1\n", copies=1)
    assert weigh("TS203", WRONG, RIGHT, {"watch": kept}).kind == "proved"
    assert weigh("TS203", WRONG, Trial(printed="3\n"), {"watch": kept}).kind == "dropped"
    # The alias cannot be seen.
    assert weigh("TS203", RIGHT, RIGHT, {"watch": kept}).kind == "runs"
    # The holder writes, too.
    written = Trial(printed="1\n", copies=1, copies_written=True)
    assert weigh("TS203", WRONG, RIGHT, {"watch": written}).kind == "runs"
    # Nothing was copied: that run says nothing.
    assert weigh("TS203", WRONG, RIGHT, {"watch": Trial(printed="1\n")}).kind == "runs"


def slopes(agrees: bool, reached: bool = True, missed: int = 0) -> Trial:
    return Trial(slopes=[Slopes((Slope(1, 1.0, 1.0, True), Slope(1, 1.0, 1.0, agrees, reached)), missed)])


@pytest.mark.parametrize(
    ("measured", "kind"),
    [
        (slopes(True), "proved"),
        (slopes(False), "runs"),
        (slopes(True, missed=1), "runs"),
        (Trial(), "runs"),
        (slopes(False, reached=False), "proved"),
    ],
)
def test_slopes_prove_only_when_all_agree(measured, kind):
    frozen = Trial(passes=[Pass((), ())])
    assert weigh("TS105", WRONG, WRONG, {"slopes": measured, "frozen": frozen}).kind == kind


def test_slopes_prove_nothing_of_another_loss():
    loss, other = (Trial(passes=[Pass((Digest((), "float32", x, x, (x,)),), ())]) for x in (1.0, 2.0))
    runs = iter([loss, other])
    evidence = Evidence(lambda changed, mode: slopes(True) if mode == "slopes" else next(runs), lambda path: SOURCE, {})
    assert evidence.weigh(Case(finding("TS105"), WRONG, None, WRONG, SOURCE, SOURCE)).kind == "runs"

"""Two runs side by side: everything that a program computes, keeps, prints and ends with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from torchsan.fix.trial import AUTOGRAD, Digest, Leaf, Pass, Step, Trial, Value

# Rounding grows with the passes; more than this it is not allowed to.
MOST_SLACK = 30.0
# How torch prints that a value has a graph: no number of the program's, and without the graph it is not printed.
_GRAPH = re.compile(r", (?:grad_fn=<\w+>|requires_grad=True)(?=[,)])")
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b")
PRINTED_RELATIVE = 1e-3
PRINTED_ABSOLUTE = 1e-5


@dataclass(frozen=True, slots=True)
class Restless:
    """What differs between two runs of one and the same program: times, paths, addresses."""

    lines: frozenset[int] = frozenset()
    ends: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class How:
    """What kind of agreement is asked for."""

    # To the end; else as far as both went.
    whole: bool = True
    # The second may reach fewer leaves, or more.
    fewer: bool = False
    more: bool = False
    # What leaves hold when a backward reaches them; an edit may move a write from before it to behind it.
    values: bool = True
    restless: Restless = field(default_factory=Restless)


def compare(expected: Trial, got: Trial, how: How) -> str:
    """The first thing that the second run did otherwise than the first; nothing where they agree."""
    for check in CHECKS.values():
        problem = check(expected, got, how)
        if problem:
            return problem
    return ""


def _slack(number: int) -> float:
    return min(float(number), MOST_SLACK)


def _number_of_passes(expected: Trial, got: Trial, how: How) -> str:
    if how.whole and len(got.passes) < len(expected.passes):
        return "it makes fewer backward passes than the reference"
    if how.whole and len(got.passes) > len(expected.passes):
        return "it makes more backward passes than the reference"
    return ""


def _each_pass(expected: Trial, got: Trial, differ: Callable[[Pass, Pass, float], str]) -> str:
    for number, (want, have) in enumerate(zip(expected.passes, got.passes, strict=False), 1):
        problem = differ(want, have, _slack(number))
        if problem:
            return f"{problem} of backward pass {number} differ{'s' if problem.endswith('value') else ''}"
    return ""


def _losses(expected: Trial, got: Trial, how: How) -> str:
    def differ(want: Pass, have: Pass, slack: float) -> str:
        if len(want.roots) != len(have.roots):
            return "the losses"
        equal = all(a.equals(b, slack) for a, b in zip(want.roots, have.roots, strict=True))
        return "" if equal else "the value"

    return _each_pass(expected, got, differ)


def _leaves(expected: Trial, got: Trial, how: How) -> str:
    def differ(want: Pass, have: Pass, slack: float) -> str:
        fewer = how.fewer and 0 < len(have.leaves) < len(want.leaves)
        more = how.more and len(have.leaves) > len(want.leaves)
        return "" if len(want.leaves) == len(have.leaves) or fewer or more else "the tensors that get a gradient"

    return _each_pass(expected, got, differ)


def _gradients(expected: Trial, got: Trial, how: How) -> str:
    def differ(want: Pass, have: Pass, slack: float) -> str:
        # Each of the smaller set must be found in the larger.
        small, large = sorted((want.leaves, have.leaves), key=len)
        left = list(large)
        for leaf in small:
            match = next((other for other in left if _leaf_equals(leaf, other, slack, how)), None)
            if match is None:
                return "the gradients"
            left.remove(match)
        return ""

    return _each_pass(expected, got, differ)


def _leaf_equals(a: Leaf, b: Leaf, slack: float, how: How) -> bool:
    if (a.gradient is None) != (b.gradient is None) or (how.values and not a.value.equals(b.value, slack)):
        return False
    return a.gradient is None or b.gradient is None or a.gradient.equals(b.gradient, slack)


def _steps(expected: Trial, got: Trial, how: How) -> str:
    """Optimizers may take turns in another order; each must take the same gradients as before."""
    for key in dict.fromkeys(map(_optimizer, expected.steps)):
        wanted = [s for s in expected.steps if _optimizer(s) == key]
        had = [s for s in got.steps if _optimizer(s) == key]
        if how.whole and len(wanted) != len(had):
            return f"{wanted[0].optimizer}.step() takes {len(had)} steps, not {len(wanted)}"
        for number, (want, have) in enumerate(zip(wanted, had, strict=False), 1):
            pairs = zip(want.gradients, have.gradients, strict=True)
            if not all(a.equals(b, _slack(number)) for a, b in pairs):
                return f"{want.optimizer}.step() takes other gradients"
    return ""


def _optimizer(step: Step) -> tuple[object, ...]:
    return (step.optimizer, *(gradient.shape for gradient in step.gradients))


def _both_ended(expected: Trial, got: Trial, how: How) -> bool:
    return how.whole and not (expected.stopped or got.stopped or expected.error or got.error)


def _values(kind: str) -> Callable[[Trial, Trial, How], str]:
    def check(expected: Trial, got: Trial, how: How) -> str:
        if not _both_ended(expected, got, how):
            return ""
        slack = _slack(max(len(got.passes), 1))
        # Modules and optimizers are numbered by their first use, which an edit may change: any of the name will do.
        have: dict[str, list[Digest | str]] = {}
        for value in got.ends:
            if value.kind == kind:
                have.setdefault(_unnumbered(value), []).append(value.value)
        for value in expected.ends:
            name = _unnumbered(value)
            if how.fewer and name.endswith(AUTOGRAD):
                continue
            if value.kind != kind or value.name in how.restless.ends or (kind != "result" and name not in have):
                continue
            others = have.get(name, [])
            match = next((other for other in others if _same_value(value.value, other, slack)), None)
            if match is None:
                return f"the {kind} {value.name} ends with another value"
            others.remove(match)
        return ""

    return check


def _unnumbered(value: Value) -> str:
    """`Linear 0.weight` as `Linear.weight`; names of variables as they are."""
    if value.kind in ("variable", "result"):
        return value.name
    owner, _, rest = value.name.partition(".")
    return f"{owner.rpartition(' ')[0]}.{rest}"


def _same_value(a: object, b: object, slack: float) -> bool:
    if isinstance(a, Digest) and isinstance(b, Digest):
        return a.equals(b, slack)
    if not isinstance(a, str) or not isinstance(b, str) or a == b:
        return a == b
    one, other = a.splitlines(), b.splitlines()
    return len(one) == len(other) and all(_same_text(x, y) for x, y in zip(one, other, strict=True))


def _texts(expected: Trial, got: Trial, how: How) -> str:
    """Files, standard error and log: the same ones, and numbers in them equal as far as they are printed."""
    if not _both_ended(expected, got, how):
        return ""
    want, have = ({v.name: v.value for v in trial.ends if v.kind == "text"} for trial in (expected, got))
    for name in {**want, **have}:
        if name not in how.restless.ends and not _same_value(want.get(name, ""), have.get(name, ""), 1.0):
            return f"{name} ends with another content"
    return ""


def _printed(expected: Trial, got: Trial, how: How) -> str:
    want, have = expected.printed.splitlines(), got.printed.splitlines()
    if _both_ended(expected, got, how) and len(want) != len(have):
        return f"it prints {len(have)} lines, not {len(want)}"
    for number, (a, b) in enumerate(zip(want, have, strict=False)):
        if number not in how.restless.lines and not _same_text(a, b):
            return f"it prints {_short(b)!r} in place of {_short(a)!r}"
    return ""


def _same_text(a: str, b: str) -> bool:
    a, b = _GRAPH.sub("", a), _GRAPH.sub("", b)
    if a == b:
        return True
    if _NUMBER.sub("0", a) != _NUMBER.sub("0", b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(_same_number(x, y) for x, y in pairs)


def _same_number(a: str, b: str) -> bool:
    if a == b:
        return True
    if a.lstrip("+-").isdigit() and b.lstrip("+-").isdigit():
        return False
    x, y = float(a), float(b)
    return abs(x - y) <= PRINTED_RELATIVE * max(abs(x), abs(y)) + PRINTED_ABSOLUTE


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _exit_code(expected: Trial, got: Trial, how: How) -> str:
    if _both_ended(expected, got, how) and expected.exit_code != got.exit_code:
        return f"it exits with {got.exit_code}, not {expected.exit_code}"
    return ""


def _errors(expected: Trial, got: Trial, how: How) -> str:
    if how.whole and bool(expected.error) != bool(got.error):
        return f"it fails: {got.error}" if got.error else "it ends where the reference fails"
    return ""


Check = Callable[[Trial, Trial, How], str]
CHECKS: dict[str, Check] = {
    "passes": _number_of_passes,
    "losses": _losses,
    "leaves": _leaves,
    "gradients": _gradients,
    "steps": _steps,
    "parameters": _values("parameter"),
    "buffers": _values("buffer"),
    "optimizer state": _values("optimizer state"),
    "variables": _values("variable"),
    "results": _values("result"),
    "texts": _texts,
    "printed": _printed,
    "exit code": _exit_code,
    "errors": _errors,
}


def restless(first: Trial, second: Trial) -> Restless:
    """What two runs of one program do not share."""
    how = How()
    pairs = enumerate(zip(first.printed.splitlines(), second.printed.splitlines(), strict=False))
    lines = frozenset(number for number, (a, b) in pairs if not _same_text(a, b))
    have = {v.name: v.value for v in second.ends}
    was = {v.name for v in first.ends}
    slack = _slack(max(len(first.passes), 1))
    ends = set()
    for value in first.ends:
        other = have.get(value.name)
        if not _same_value(value.value, other, slack) and _both_ended(first, second, how):
            ends.add(value.name)
    ends |= {v.name for v in second.ends if v.kind == "text" and v.name not in was}
    return Restless(lines, frozenset(ends))


def told(trial: Trial, against: str) -> str:
    """What a comparison to the end covered, in words."""
    parts = [_count(sum(len(p.roots) for p in trial.passes), "loss", "losses")]
    parts.append(_count(trial.gradients, "gradient", "gradients"))
    kinds = Counter(value.kind for value in trial.ends if not value.name.endswith(AUTOGRAD))
    parts += [
        _count(kinds["parameter"], "parameter", "parameters"),
        _count(kinds["buffer"], "buffer", "buffers"),
        _count(kinds["optimizer state"], "value of optimizer state", "values of optimizer state"),
        _count(kinds["variable"] + kinds["result"], "variable", "variables"),
        _count(len(trial.printed.splitlines()), "printed line", "printed lines"),
        _count(sum(v.name.startswith("file ") for v in trial.ends if v.kind == "text"), "file", "files"),
    ]
    said = [part for part in parts if part]
    steps = f" over {_count(len(trial.passes), 'backward pass', 'backward passes')}" if trial.passes else ""
    end = " and the exit code" if not trial.stopped else ""
    on = f" on {trial.ranks} ranks" if trial.ranks > 1 else ""
    return f"{', '.join(said)}{end}{steps}{on} equal {against}" if said else f"the exit code equals {against.strip()}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""

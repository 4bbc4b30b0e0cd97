"""`torchsan.verify(model, args, kwargs)`: the whole of it, from a model to a report."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import torch

from torchsan import compat_compile
from torchsan.errors import UsageError
from torchsan.model import Capture, Finding, Outcome, Place, Report
from torchsan.verify.code import capture_text, reproduction
from torchsan.verify.compiled import BACKENDS, compiled_facts, has_compiler
from torchsan.verify.frames import calling_place, is_users
from torchsan.verify.guards import is_about_one
from torchsan.verify.hunt import Counterexample, Trial, try_method
from torchsan.verify.judging import Judge, Judgement
from torchsan.verify.methods import METHODS, ON_REQUEST, Captured, onnx_missing
from torchsan.verify.optional import optional_arguments
from torchsan.verify.subject import Subject, random_state_kept
from torchsan.verify.timing import now
from torchsan.verify.tree import module_tree
from torchsan.verify.truth import Truth

Progress = Callable[[str], None]


class FunctionModule(torch.nn.Module):  # type: ignore[misc]
    """A function to be captured, as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["_function"] = function
        self.__dict__["forward"] = function

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionModule:
        return FunctionModule(self.__dict__["_function"])


def as_subject(
    model: Any,
    args: Any,
    kwargs: dict[str, Any] | None,
    seed: int,
    origin: str = "",
    more: Iterable[Any] = (),
) -> Subject:
    model, expression = compat_compile.undone(model)
    if expression and origin:
        origin += f"\nmodel = {expression}"
    if isinstance(model, torch.nn.Module):
        module = model
    elif callable(model) and not isinstance(model, type):
        module = FunctionModule(model)
    else:
        raise UsageError(f"a model is a torch.nn.Module or a function, not {type(model).__name__}")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise UsageError(f"kwargs is a dict of keyword arguments, not {type(kwargs).__name__}")
    others = [_as_args(other) for other in more]
    return Subject(module, _as_args(args), dict(kwargs or {}), seed=seed, origin=origin, more=others)


def _as_args(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, tuple | list) else (args,)


# The functions themselves, as they are called.
AS_TYPED = {
    "torch.export": "export",
    "torch.export.export": "export",
    "torch.jit.trace": "jit.trace",
    "torch.jit.script": "jit.script",
    "torch.onnx.export": "onnx",
    "torch.compile": "compile",
}


def chosen_methods(methods: Iterable[str] | None, model: Any = None) -> tuple[list[str], str]:
    """The methods to try, and a remark on one that cannot be; a model that is compiled is verified compiled, too."""
    if methods is not None:
        wanted = list(dict.fromkeys(AS_TYPED.get(name, name) for name in methods))
        unknown = [name for name in wanted if name not in METHODS]
        if unknown or not wanted:
            raise UsageError(f"there is no method {(unknown or [''])[0]!r}; the methods are {', '.join(METHODS)}")
        if "onnx" in wanted and onnx_missing():
            raise UsageError(f"method onnx needs {onnx_missing()}: pip install 'torchsan[onnx]'")
        if "compile" in wanted and has_compiler():
            wanted = list(dict.fromkeys([*wanted, *BACKENDS]))
        return wanted, ""
    wanted = [name for name in METHODS if name not in ON_REQUEST]
    if _is_compiled(model):
        wanted += BACKENDS if has_compiler() else ["compile"]
    missing = onnx_missing()
    if not missing:
        return wanted, ""
    return [name for name in wanted if name != "onnx"], f"onnx was not tried: pip install 'torchsan[onnx]' ({missing})"


def _is_compiled(model: Any) -> bool:
    if compat_compile.undone(model)[1]:
        return True
    return isinstance(model, torch.nn.Module) and compat_compile.compiles(model)


def verify(
    model: Any,
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    *,
    methods: Iterable[str] | None = None,
    budget: float = 120.0,
    seed: int = 0,
    save: str | Path | None = None,
    origin: str = "",
    home: Place | None = None,
    progress: Progress | None = None,
    known: Callable[[Report], None] | None = None,
    more: Iterable[Any] = (),
) -> Report:
    """Capture a model in every way (or in `methods`) and hunt for inputs on which capture and eager disagree.

    `more` has the arguments of other calls that the model is meant for; without it they are looked for by trying.

    Everything runs on deep copies and the random state is put back: the model stays as it is. `known` is given what is
    known after every method, before causes are looked for.
    """
    wanted, remark = chosen_methods(methods, model)
    subject = as_subject(model, args, kwargs, seed, origin, more)
    subject.home = home or calling_place()
    subject.limit = max(subject.limit, budget / 4)
    with random_state_kept():
        return _verify(subject, wanted, methods is None, budget, save, progress or (lambda text: None), known, remark)


def _verify(
    subject: Subject,
    wanted: list[str],
    fall_back: bool,
    budget: float,
    save: str | Path | None,
    progress: Progress,
    known: Callable[[Report], None] | None,
    remark: str,
) -> Report:
    started = time.perf_counter()
    begun = now()
    deadline = begun + budget
    truth = Truth(subject, begun + budget * 0.4)
    progress("eager")
    truth.establish()
    truth.explore()
    trials: list[Trial] = []
    for number, method in enumerate(wanted):
        progress(method)
        # What one method does not need is left to the next ones.
        at = now()
        share = at + max(0.0, deadline - at) / (len(wanted) - number)
        trials.append(try_method(method, truth, share))
        if method in BACKENDS and trials[-1].captured is not None:
            trials[-1].compiled = compiled_facts(subject, BACKENDS[method], truth.random)
        if method == "export" and fall_back and trials[-1].captured is None:
            wanted_static = try_method("export-static", truth, share)
            if wanted_static.captured is not None:
                trials.append(wanted_static)
        if known is not None:
            known(build_report(truth, trials, Judgement(), time.perf_counter() - started))
    progress("causes")
    judge = Judge(truth, max(deadline, now() + 10))
    for trial in trials:
        judge.trial(trial)
    judgement = judge.judgement(trials)
    report = build_report(truth, trials, judgement, time.perf_counter() - started)
    # The last: telling where they part runs the model, too.
    subject.reset()
    report.notes += [remark] if remark else []
    if save is not None:
        from torchsan.verify.certificate import write

        write(Path(save), report, truth, trials)
    return report


def column_name(column: str) -> str:
    names = {"calls": "second call", "seed": "random draws", "arguments": "arguments left out", "mode": "other mode"}
    return names.get(column, column)


def checks_of(trial: Trial, truth: Truth) -> dict[str, str]:
    """The row of the table: what was compared, and how it went."""
    if trial.captured is None:
        return {"captured": "fails"}
    checks = {"captured": _how(trial.captured)}
    variants = [*(variant for variant, _ in truth.pairs), *(found.variant for found in trial.counterexamples.values())]
    sizes = dict.fromkeys(variant.dimension for variant in variants if variant.kind == "size")
    columns = ["values", *sizes, "arguments", "calls", "seed", "mode", "dtype", "effects"]
    for column in columns:
        found = trial.counterexamples.get(column) or (
            trial.counterexamples.get("example") if column == "values" else None
        )
        if found is not None:
            checks[column_name(column)] = _disagrees(found)
        elif column in trial.in_distribution:
            checks[column_name(column)] = "agrees (in distribution)"
        elif column in trial.untried:
            tried = trial.tried.get(column)
            checks[column_name(column)] = f"agrees on {tried}, not finished" if tried else "not tried"
        elif trial.tried.get(column) or (column in ("values", "effects") and trial.tried):
            checks[column_name(column)] = "agrees"
        elif column == "arguments" and trial.fixed_arguments:
            checks[column_name(column)] = "fixed"
        elif column == "mode" and trial.kept_mode:
            checks[column_name(column)] = "kept as captured"
    for column in trial.untried:
        checks.setdefault(column_name(column), "not tried")
    lost = _lost_attributes(truth)
    if lost and checks.get("effects") == "agrees" and trial.method not in BACKENDS:
        checks["effects"] = f"agrees ({lost} is not kept)"
    if trial.compiled is not None:
        checks.update(trial.compiled.checks())
    return checks


def _disagrees(found: Counterexample) -> str:
    if found.difference.kind != "raises":
        return "differs"
    if found.variant.only_size_one:
        return "refuses size 1"
    return "refuses an inner size of 1" if is_about_one(found.got.error) else "refuses"


def _how(captured: Captured) -> str:
    if not captured.refused:
        return "yes"
    return f"{'unchecked' if captured.unchecked else 'wrapped'} (the plain call fails)"


def _lost_attributes(truth: Truth) -> str:
    from torchsan.verify.subject import attributes_of

    before = attributes_of(truth.subject.model)
    changed = [n for n, text in truth.example.attributes.items() if before.get(n) != text]
    return f"self.{changed[0]}" if changed else ""


def best_of(trials: list[Trial]) -> Trial | None:
    """The first faithful one in the order of METHODS; else the least wrong, loud before silent."""
    rank = [*METHODS, "jit"]
    usable = [t for t in trials if t.captured is not None and t.tried and not t.skipped]

    def badness(trial: Trial) -> tuple[int, int, bool, int]:
        silent = sum(c.difference.kind != "raises" for c in trial.counterexamples.values())
        return silent, len(trial.counterexamples), trial.outcome == "unfinished", rank.index(trial.method)

    return min(usable, key=badness, default=None)


def build_report(truth: Truth, trials: list[Trial], judgement: Judgement, seconds: float) -> Report:
    report = Report(torch=torch.__version__, findings=list(judgement.findings))
    for trial in trials:
        report.captures.append(_capture(trial, truth, judgement))
    best = best_of(trials)
    report.extra = {
        "best": best.method if best else None,
        "best_is_faithful": bool(best and best.outcome == "faithful"),
        "code": _paste(best, truth) if best else "",
        "dimensions": [{"name": d.label, "example": d.size, "also": list(d.accepted)} for d in truth.sizes.dimensions],
        "seconds": {
            "total": round(seconds, 3),
            "eager": round(truth.seconds, 3),
            "captures": {t.method: round(t.capture_seconds, 3) for t in trials},
            "checks": {t.method: round(t.check_seconds, 3) for t in trials},
        },
        "variants": {"tried": len(truth.pairs), "outside_domain": truth.rejected},
        "seed": truth.subject.seed,
        "modules": module_tree(truth, trials, judgement.findings),
        "platform": platform.platform(),
    }
    report.notes += _remarks(truth, trials, judgement.findings)
    return report


def _capture(trial: Trial, truth: Truth, judgement: Judgement) -> Capture:
    example = None
    reason = judgement.reasons.get(trial.method, "")
    if trial.compiled is not None and trial.compiled.departs:
        reason = trial.compiled.departs
    if trial.captured is not None and trial.skipped:
        reason = trial.skipped
    elif trial.outcome == "unfinished":
        reason = _unfinished(trial)
    if trial.counterexamples and trial.captured is not None:
        found = next(iter(sorted(trial.counterexamples.items(), key=lambda i: i[1].difference.kind == "raises")))[1]
        example = reproduction(truth.subject, trial.captured, found, trial.method)
        reason = found.difference.text
    return Capture(
        method=trial.method,
        outcome=cast(Outcome, trial.outcome),
        tried=sum(trial.tried.values()),
        counterexample=example,
        finding=judgement.by_method.get(trial.method),
        checks=checks_of(trial, truth),
        reason=reason,
    )


def _unfinished(trial: Trial) -> str:
    """What a budget left out, which is not the same as agreement."""
    if trial.captured is None:
        return "the budget ended before it was captured"
    left = list(dict.fromkeys(column_name(column) for column in trial.untried))
    more = f" and {len(left) - 6} more" if len(left) > 6 else ""
    agreed = f"agrees on the {sum(trial.tried.values())} inputs tried, but " if trial.tried else ""
    return f"not finished: {agreed}the budget ended before these were compared: {', '.join(left[:6])}{more}"


def _paste(best: Trial, truth: Truth) -> str:
    assert best.captured is not None
    text = capture_text(
        best.method,
        dynamic=best.captured.dynamic,
        bound=best.captured.bound,
        kwargs=bool(truth.subject.kwargs),
        unchecked=best.captured.unchecked,
    )
    save = {
        "jit.trace": 'captured.save("model.pt")',
        "jit.script": 'captured.save("model.pt")',
        "onnx": 'captured.save("model.onnx")',
        **dict.fromkeys(BACKENDS, ""),
    }.get(best.method, 'torch.export.save(captured, "model.pt2")')
    return "\n".join(line for line in (text, save) if line)


def _remarks(truth: Truth, trials: list[Trial], findings: list[Finding]) -> list[str]:
    notes = []
    traced = next((t for t in trials if t.method == "jit.trace" and t.captured), None)
    if traced is not None and traced.captured is not None:
        notes += _tracer_warnings(traced, findings)
    if any(t.method.startswith("jit.") for t in trials):
        notes.append("TorchScript (jit.trace, jit.script) is deprecated since torch 2.10: use torch.export")
    for trial in trials:
        if trial.captured is not None and trial.captured.refused:
            wrapper = "a wrapper around the model, tensors in and tensors out"
            what = "the trace that check_trace=False gives" if trial.captured.unchecked else wrapper
            fails = f"torch.{trial.method}(model, args) itself fails: {trial.captured.refused}"
            notes.append(f"{fails}; what is judged here is {what}")
        notes += trial.compiled.notes(trial.method) if trial.compiled is not None else []
        if trial.captured is not None and trial.captured.unsaved:
            notes.append(f"{trial.method} runs here but cannot be saved: {trial.captured.unsaved}")
        if trial.made_tensors:
            names = ", ".join(f"`{name}`" for name in trial.made_tensors)
            notes.append(f"{trial.method} returns a tensor where the model returns a plain number: {names}")
    other = [t.method for t in trials if t.in_distribution]
    if other:
        notes.append(f"{', '.join(other)} draw(s) other random numbers than eager: compared in distribution")
    fixed = [t.method for t in trials if t.fixed_arguments]
    if fixed:
        names = ", ".join(f"`{name}`" for name in optional_arguments(truth.subject))
        notes.append(f"{', '.join(fixed)} can only be called as the example is, with {names}")
    if truth.untried or any(t.untried or t.out_of_time for t in trials):
        notes.append("the budget ended before everything was tried: --budget gives more time")
    return notes


def _harmless(trial: Trial, line: tuple[str, int]) -> str:
    number = sum(trial.tried.values())
    if line in trial.sides.refused:
        return f"harmless on all {number} inputs tried; what takes the other side the model itself refuses"
    if line in trial.sides.one_sided:
        return f"undecided, no input took the other side of this branch (the {number} tried agree)"
    return f"harmless on all {number} inputs tried"


def _tracer_warnings(trial: Trial, findings: list[Finding]) -> list[str]:
    """Every TracerWarning is judged: harmful, harmless on everything that was tried, or not put to the test."""
    from torchsan.model.source import shown_path

    assert trial.captured is not None
    notes = []
    # Those of torch's own lines are about the whole trace (it draws random numbers), which the table judges.
    warned = [(path, line) for path, line, _ in trial.captured.warnings if is_users(path)]
    places = dict.fromkeys((shown_path(path), line) for path, line in warned)
    codes = {(span.path, span.line): f.code for f in findings for span in f.spans}
    for path, line in list(places)[:10]:
        code = codes.get((path, line))
        if code:
            notes.append(f"TracerWarning at {path}:{line}: harmful, see {code}")
        elif trial.outcome == "unfinished":
            notes.append(f"TracerWarning at {path}:{line}: undecided, the comparison was not finished")
        elif not trial.counterexamples:
            notes.append(f"TracerWarning at {path}:{line}: {_harmless(trial, (path, line))}")
        else:
            notes.append(f"TracerWarning at {path}:{line}: not the cause of what was found")
    return notes

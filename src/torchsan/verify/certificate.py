"""The artifact that is recommended, the certificate of what was tried, and checking an artifact again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchsan.errors import UsageError
from torchsan.model import Report
from torchsan.verify.api import as_subject, best_of, build_report
from torchsan.verify.compare import Tolerance
from torchsan.verify.hunt import Trial, check
from torchsan.verify.judging import Judge
from torchsan.verify.methods import Captured
from torchsan.verify.subject import one_line, quiet, random_state_kept
from torchsan.verify.timing import now
from torchsan.verify.truth import Truth
from torchsan.version import __version__

NAMES = {"jit.trace": "model.pt", "jit.script": "model.pt", "onnx": "model.onnx"}
SCHEMA = "torchsan-certificate/1"


def _save(trial: Trial, path: Path) -> None:
    artifact: Any = trial.captured.artifact if trial.captured else None
    with quiet():
        if trial.method in ("jit.trace", "jit.script"):
            torch.jit.save(artifact, str(path))
        elif trial.method == "onnx":
            artifact.save(str(path))
        else:
            torch.export.save(artifact, str(path))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def certificate(report: Report, truth: Truth, trial: Trial, path: Path) -> dict[str, Any]:
    assert trial.captured is not None
    versions = {"torchsan": __version__, "torch": torch.__version__, "python": platform.python_version()}
    tolerance = trial.captured.tolerance
    subject = truth.subject
    return {
        "schema": SCHEMA,
        "versions": versions,
        "platform": platform.platform(),
        "artifact": {"file": path.name, "sha256": digest(path), "method": trial.method},
        "outcome": trial.outcome,
        "seed": truth.subject.seed,
        "tolerance": {"rtol": tolerance.rtol, "atol": tolerance.atol},
        "mode": "train" if truth.subject.model.training else "eval",
        "inputs": [
            {
                "name": subject.names[i],
                "shape": list(subject.leaves[i].shape),
                "dtype": str(subject.leaves[i].dtype),
            }
            for i in subject.tensors
        ],
        "variants": [
            {
                "kind": v.kind,
                "label": v.label,
                "edits": {subject.names[i]: e for i, e in v.edits.items()},
                "calls": v.calls,
                "seed": v.seed,
                "left_out": list(v.left_out),
            }
            for v, _ in truth.pairs
            if (trial.captured.can_widen or not v.double) and not (v.left_out and trial.captured.fixes_arguments)
        ],
        "outside_domain": truth.rejected,
        "checks": next(c.checks for c in report.captures if c.method == trial.method),
    }


def write(folder: Path, report: Report, truth: Truth, trials: list[Trial]) -> None:
    """The best artifact and its certificate; nothing when no capture succeeded."""
    best = best_of([trial for trial in trials if trial.captured is not None and trial.captured.artifact is not None])
    if best is None:
        report.notes.append("nothing was saved: no capture succeeded")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / NAMES.get(best.method, "model.pt2")
        _save(best, path)
        text = json.dumps(certificate(report, truth, best, path), indent=2)
        (folder / "certificate.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--save: {folder} cannot be written ({error.strerror or error})") from None
    except Exception as error:
        report.notes.append(f"the {best.method} artifact could not be saved: {one_line(error)}")
        return
    report.notes.append(f"saved {path} and {folder / 'certificate.json'}")
    report.captures = [_with_artifact(c, str(path)) if c.method == best.method else c for c in report.captures]


def _with_artifact(capture: Any, path: str) -> Any:
    from dataclasses import replace

    return replace(capture, artifact=path)


def _loaded(path: str) -> Captured:
    ending = os.path.splitext(path)[1]
    if ending == ".pt2":
        program = torch.export.load(path)
        return Captured("export", lambda: torch.export.load(path).module(), program)
    if ending in (".pt", ".pth", ".ts"):
        module = torch.jit.load(path)
        return Captured("jit", lambda: torch.jit.load(path), module, can_widen=True)
    if ending == ".onnx":
        from torchsan.verify.onnx_runner import OnnxRunner

        runner = OnnxRunner(path)
        return Captured("onnx", lambda: runner, runner, only_tensors=True, tolerance=Tolerance(1e-3, 1e-4))
    raise UsageError(f"{path} is no artifact that torchsan knows: .pt2, .pt or .onnx")


def _load(path: str) -> Captured:
    try:
        with quiet():
            return _loaded(path)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {one_line(error)}") from None


def _loading_code(captured: Captured, path: str) -> str:
    full = os.path.abspath(path)
    if captured.method == "jit":
        return f"captured = torch.jit.load({full!r})"
    if captured.method == "onnx":
        return f"from torchsan.verify.onnx_runner import OnnxRunner\ncaptured = OnnxRunner({full!r})"
    return f"captured = torch.export.load({full!r})"


def check_artifact(
    path: str, model: Any, args: Any, kwargs: dict[str, Any], *, budget: float, seed: int, origin: str = ""
) -> Report:
    """Hold an existing artifact against the model that it is said to be."""
    captured = _load(path)
    captured.source = _loading_code(captured, path)
    subject = as_subject(model, args, kwargs, seed, origin)
    with random_state_kept():
        started = time.perf_counter()
        begun = now()
        truth = Truth(subject, begun + budget * 0.4)
        truth.establish()
        truth.explore()
        trial = Trial(captured.method, captured)
        captured.bound = captured.method == "jit" and not _takes_the_same(captured, truth)
        captured.only_tensors = captured.only_tensors or captured.bound
        check(trial, truth, begun + budget)
        judge = Judge(truth, max(begun + budget, now() + 10))
        judge.trial(trial)
        report = build_report(truth, [trial], judge.judgement([trial]), time.perf_counter() - started)
        subject.reset()
        return report


def _takes_the_same(captured: Captured, truth: Truth) -> bool:
    """A trace of a model with other inputs than tensors was made of its tensors alone."""
    run: Callable[..., Any] = captured.run
    outcome = run(truth.subject, truth.subject.plan())
    return outcome.error is None

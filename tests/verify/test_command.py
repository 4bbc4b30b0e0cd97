"""`torchsan verify` as people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = str(HERE / "programs.py")


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, check=False)


def verify(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "torchsan", "verify", *arguments)


@pytest.mark.parametrize("factory", ["narrow_branch", "reparametrised"])
def test_an_unfaithful_trace_exits_1_and_its_counterexample_reproduces_by_itself(factory: str) -> None:
    done = verify(f"{PROGRAMS}:{factory}", "--method", "jit.trace", "--format", "json")
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    report = json.loads(done.stdout)
    (capture,) = report["captures"]
    assert capture["outcome"] == "unfaithful"
    again = run("-c", capture["counterexample"])
    assert again.returncode == 1
    assert "AssertionError" in again.stderr


def test_calls_that_the_factory_gives_are_tried_and_reproduce() -> None:
    done = verify(f"{PROGRAMS}:known_to_the_author", "--method", "jit.trace", "--format", "json")
    assert done.returncode == 1, done.stderr
    (capture,) = json.loads(done.stdout)["captures"]
    assert capture["outcome"] == "unfaithful"
    assert capture["checks"]["the other inputs that were given"] == "differs"
    again = run("-c", capture["counterexample"])
    assert again.returncode == 1
    assert "AssertionError" in again.stderr


def test_a_faithful_trace_exits_0_and_shows_the_table() -> None:
    done = verify(f"{PROGRAMS}:attention", "--method", "jit.trace")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faithful" in done.stdout
    assert "x.shape[1]" in done.stdout
    assert "captured = torch.jit.trace(model, args)" in done.stdout


def test_an_instance_with_inputs_from_the_command_line() -> None:
    done = verify(f"{PROGRAMS}:instance", "--args", "torch.randn(2, 3)", "--method", "jit.trace")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_by_its_dotted_name() -> None:
    done = verify("tests.verify.programs:words", "--method", "jit.trace", "--eval")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py:make"], "there is no file nowhere.py"),
        ([PROGRAMS], "does not name a factory"),
        (["no.such.module:make"], "there is no module"),
        ([f"{PROGRAMS}:rowz"], "did you mean rows?"),
        ([f"{PROGRAMS}:raises"], "raised ValueError at "),
        ([f"{PROGRAMS}:number"], "must return (model, args)"),
        ([f"{PROGRAMS}:instance"], "--args"),
        ([f"{PROGRAMS}:instance", "--args", "1 +"], "--args"),
        ([f"{PROGRAMS}:rows", "--method", "magic"], "there is no method 'magic'"),
        ([f"{PROGRAMS}:rows", "--budget", "-1"], "--budget"),
        ([f"{PROGRAMS}:rows", "--artifact", "none.pt"], "there is no file"),
        ([f"{PROGRAMS}:rows", "--artifact", PROGRAMS], "no artifact that torchsan knows"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments: list[str], words: str) -> None:
    done = verify(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_the_saved_artifact_has_a_certificate_and_can_be_checked_again(tmp_path: Path) -> None:
    done = verify(f"{PROGRAMS}:attention", "--method", "export", "--save", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["outcome"] == "faithful"
    assert certificate["artifact"]["file"] == "model.pt2"
    assert any(variant["kind"] == "size" for variant in certificate["variants"])
    again = verify(f"{PROGRAMS}:attention", "--artifact", str(tmp_path / "model.pt2"))
    assert again.returncode == 0, again.stdout + again.stderr
    other = verify(f"{PROGRAMS}:remembers", "--artifact", str(tmp_path / "model.pt2"))
    assert other.returncode == 1


def test_a_traced_artifact_is_checked_too(tmp_path: Path) -> None:
    verify(f"{PROGRAMS}:rows", "--method", "jit.trace", "--save", str(tmp_path))
    again = verify(f"{PROGRAMS}:rows", "--artifact", str(tmp_path / "model.pt"), "--format", "json")
    assert again.returncode == 1
    report = json.loads(again.stdout)
    assert report["findings"][0]["code"] == "TS310"
    assert run("-c", report["captures"][0]["counterexample"]).returncode == 1


@pytest.mark.parametrize(
    "code",
    [
        "import torchsan; import torchsan.verify.api; torchsan.verify",
        "import torchsan.verify.api; import torchsan; torchsan.verify",
        "from torchsan import verify; verify",
        "import torchsan; torchsan.verify; from torchsan.verify.compare import flatten; torchsan.verify",
    ],
)
def test_the_name_is_callable_whatever_was_imported_first(code: str) -> None:
    head, _, name = code.rpartition("; ")
    call = f"{name}(torch.nn.Linear(1, 1), (torch.ones(2, 1),), methods=['jit.trace']).captures[0].outcome"
    done = run("-c", f"import torch; {head}; print({call})")
    assert done.stdout.strip() == "faithful", done.stderr


def test_importing_torchsan_does_not_import_torch() -> None:
    done = run("-c", "import torchsan, sys; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"

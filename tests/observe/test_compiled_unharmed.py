"""Compiled programs compute the same bits with and without torchsan, in as many graphs and with as many breaks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import compiled_inside
import compiled_programs
import compiled_sharing
import pytest

# Runs each program and tells what is left of it: all tensors bit by bit, and what dynamo has counted.
DRIVER = """
import hashlib, json, runpy, sys
import torch

def bits(value):
    if isinstance(value, torch.nn.Module):
        for name, held in value.state_dict().items():
            yield from bits(held)
        for parameter in value.parameters():
            yield from bits(parameter.grad)
    elif isinstance(value, torch.Tensor):
        yield value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

told = {}
for path in sys.argv[2:]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    left = runpy.run_path(path, run_name="__main__")
    digest = hashlib.sha256()
    for name in sorted(left):
        for part in bits(left[name]):
            digest.update(part)
    digest.update(torch.get_rng_state().numpy().tobytes())
    counted = torch._dynamo.utils.counters
    told[path] = [digest.hexdigest(), dict(counted["frames"]), sorted(counted["graph_break"].values()), dict(counted["stats"])]
json.dump(told, open(sys.argv[1], "w"))
"""
SHORT = ("buffer_updates_and_breaks", "compiled_optimizer", "ring_of_slots_written_in_turn", "noise_scaled_in_place")
LONG = (
    *SHORT,
    *("recompiles_and_dynamic_shapes", "gradient_accumulation_and_checkpoint", "dropout_and_random_draws"),
    "counter_and_average_in_checkpointed_regions",
    *("compiled_autograd", "averages_of_batches_in_a_full_graph", "state_copied_by_disabled_function"),
    *("state_of_region_copied_into_a_list", "state_of_region_kept_in_a_list", "parameter_rescaled_between_two_uses"),
    *("buffer_is_updated_again_in_backward", "table_divided_by_decorated_region"),
    *("frames_of_a_given_field_are_one_tensor", "skip_connection_rectified_by_a_layer"),
)
PROGRAMS = {
    **compiled_programs.CLEAN,
    **compiled_sharing.CLEAN,
    **compiled_sharing.HAZARDS,
    **compiled_inside.CLEAN,
    **{name: program for name, (_, program) in compiled_inside.HAZARDS.items()},
}


def _told(folder: Path, backend: str, names: tuple[str, ...], *before: str) -> dict:
    (folder / "driver.py").write_text(DRIVER)
    for name in names:
        (folder / f"{name}.py").write_text(compiled_programs.SETUP.format(backend=backend) + PROGRAMS[name])
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *before, "driver.py", "told.json", *(f"{name}.py" for name in names)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (folder / "told.json").exists(), done.stderr
    told = json.loads((folder / "told.json").read_text())
    if "compiled_autograd.py" in told:
        told["compiled_autograd.py"][1] = {}  # how much of torch's own code dynamo meets there differs from run to run
    (folder / "told.json").unlink()
    assert "stepped aside" not in done.stderr
    return told


def _compared(folder: Path, backend: str, names: tuple[str, ...]) -> None:
    plain = _told(folder, backend, names)
    watched = _told(folder, backend, names, "-m", "torchsan", "run")
    assert watched == plain


def test_aot_eager(tmp_path):
    _compared(tmp_path, "aot_eager", LONG)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler")
def test_inductor(tmp_path):
    _compared(tmp_path, "inductor", SHORT)


def test_dynamo_is_loaded_only_by_programs_that_do(tmp_path):
    (tmp_path / "eager.py").write_text(
        "import sys, torch\n"
        "x = torch.randn(3, requires_grad=True)\n"
        "torch.tanh(x).sum().backward()\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for before in ((), ("-m", "torchsan", "run")):
        command = [sys.executable, *before, "eager.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"

"""No edit is ever called verified whose program, run again with other seeds, fails or has other gradients."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

import pytest
import torch
from generated_aliases import MISTAKES, alias_program
from generated_programs import program

import torchsan

# Each takes about ten runs to prove. `TORCHSAN_PROGRAMS=2000` tries that many; it takes half an hour and more.
PROGRAMS = int(os.environ.get("TORCHSAN_PROGRAMS", "10"))
CHUNK = min(25, PROGRAMS)


def load(path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def agree(got, want) -> bool:
    pairs = [(a, b) for one, other in zip(got, want, strict=True) for a, b in zip(one, other, strict=True)]
    return all(near(a, b) for a, b in pairs)


def near(a, b) -> bool:
    return (a is None and b is None) or torch.allclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_verified_edits_are_right_on_other_seeds(first, tmp_path):
    verified = broken = seen = 0
    for number in range(first, min(first + CHUNK, PROGRAMS)):
        path = tmp_path / f"program_{number}.py"
        source = program(number)
        path.write_text(source)
        module = load(path)
        mended = torchsan.fix(module.train, 0)
        broken += bool(mended.report.findings)
        # What autograd does not see has no gradient to compare with: another fault of the program may not be mended.
        seen += bool(mended.report.findings) and ".data" not in source
        if not mended.verified:
            continue
        verified += 1
        fixed_path = tmp_path / f"fixed_{number}.py"
        [edited] = mended.outcome.changed.values()
        fixed_path.write_bytes(edited.raw)
        fixed = load(fixed_path)
        by_reference = all(proof["equals_reference"] for proof in mended.proof)
        for seed in (11, 12):
            got = fixed.train(seed)
            if by_reference:
                with torchsan.heal():
                    want = module.train(seed)
                assert agree(got, want), f"program {number}, seed {seed}:\n{mended.diff}"
    print(
        f"programs {first} to {first + CHUNK - 1}: {broken} with findings, {verified} mended and right on other seeds"
    )
    # The test would say nothing if nothing were broken, or nothing mended.
    assert broken > CHUNK // 5
    assert verified > seen // 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_verified_copies_make_programs_what_they_mean(first, tmp_path):
    """Memory that is shared by mistake, beside memory that is shared on purpose."""
    verified: dict[str, int] = {}
    for number in range(first, min(first + CHUNK, PROGRAMS)):
        kind, source, meant = alias_program(number)
        path, twin_path = tmp_path / f"alias_{number}.py", tmp_path / f"meant_{number}.py"
        path.write_text(source)
        twin_path.write_text(meant)
        mended = torchsan.fix(load(path).train, 0)
        if not mended.verified:
            continue
        verified[kind] = verified.get(kind, 0) + 1
        fixed_path = tmp_path / f"mended_{number}.py"
        [edited] = mended.outcome.changed.values()
        fixed_path.write_bytes(edited.raw)
        fixed, twin = load(fixed_path), load(twin_path)
        for seed in (11, 12):
            pairs = zip(fixed.train(seed), twin.train(seed), strict=True)
            assert all(near(a, b) for a, b in pairs), f"{kind}, program {number}, seed {seed}:\n{mended.diff}"
    print(f"alias programs {first} to {first + CHUNK - 1}: mended and right on other seeds: {verified}")
    assert set(verified) <= set(MISTAKES), "sharing that is meant was mended"
    assert verified

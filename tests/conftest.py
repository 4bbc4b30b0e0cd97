"""Helpers that every test can use: run a piece of source under the recorder, as a file of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from torchsan.model import Finding, Report

# How fast the machine is says nothing about the code: no deadline, and slow generation is no failure.
settings.register_profile("torchsan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("torchsan")

# The suite keeps to the sensor in Python, which is what every machine has; tests that ask for `sensor` run on both.
# `TORCHSAN_NATIVE=1 pytest` runs everything on the native part.
os.environ.setdefault("TORCHSAN_NATIVE", "0")

# A shell's background jobs ignore the interrupt, and so would the programs that are started from here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that have a share of the run's time are made, however slow the machine is."""
    monkeypatch.setattr("torchsan.observe.timing.Share.granted", lambda share: float("inf"))
    monkeypatch.setattr("torchsan.observe.kept.upward.LONGEST", float("inf"))


@pytest.fixture(autouse=True)
def nothing_compiled_yet() -> None:
    """What an earlier test compiled says nothing about the next one's program."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters.clear()


@pytest.fixture(params=["python", "native"])
def sensor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the two ways in which writes are seen; native only where it is built (`make native`)."""
    from torchsan.observe import native

    name: str = request.param
    monkeypatch.setenv(native.SWITCH, "1" if name == "native" else "0")
    if name == "native" and native.load() is None:
        pytest.skip("the native part is not built")
    return name


@dataclass
class Watched:
    """What came of running a program."""

    path: Path
    report: Report
    error: BaseException | None

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.report.findings]

    @property
    def alarms(self) -> list[Finding]:
        return self.report.alarms

    def lines(self, *roles: str) -> set[int]:
        return {
            span.line
            for finding in self.report.findings
            for span in finding.spans
            if span.role in roles and Path(span.path).name == self.path.name
        }

    def marked(self, mark: str) -> set[int]:
        """Lines of the program that end with the comment `# mark`."""
        lines = self.path.read_text().splitlines()
        return {number for number, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}")}


@pytest.fixture
def watch_program(tmp_path: Path) -> Callable[..., Watched]:
    def run(source: str, name: str = "program.py") -> Watched:
        import torchsan

        path = tmp_path / name
        path.write_text(textwrap.dedent(source).lstrip("\n"))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        block = torchsan.watch()
        error: BaseException | None = None
        # As the import statement does: dataclasses ask for the module by name, and so do we for its globals.
        before = sys.modules.get(spec.name)
        sys.modules[spec.name] = module
        try:
            with block, contextlib.redirect_stdout(io.StringIO()):
                spec.loader.exec_module(module)
        except Exception as raised:
            error = raised
        finally:
            del sys.modules[spec.name]
            if before is not None:
                sys.modules[spec.name] = before
        return Watched(path, block.report, error)

    return run

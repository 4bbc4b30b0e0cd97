"""Run a program with memory measured."""

from __future__ import annotations

import pytest

from torchsan.model import Report
from torchsan.observe.recorder import Recorder


@pytest.fixture
def measured(tmp_path):
    def run(source: str) -> Report:
        path = tmp_path / "program.py"
        path.write_text(source)
        recorder = Recorder(memory=True)
        recorder.start()
        try:
            exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
        finally:
            recorder.stop()
        return recorder.report

    return run

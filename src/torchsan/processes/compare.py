"""What can only be seen by laying the records of several ranks side by side."""

from __future__ import annotations

from torchsan.model import Finding
from torchsan.processes.reading import Record


def compare_ranks(records: list[Record]) -> list[Finding]:
    return []

"""A list of known findings that are not shown. It only ever shrinks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from torchsan.errors import UsageError
from torchsan.model import Finding
from torchsan.model.source import source_line

Key = tuple[str, str, str]
SCHEMA = "torchsan-baseline/1"


def key_of(finding: Finding) -> Key:
    """File, code and the line's text: moving a line does not make its finding new."""
    at = finding.primary
    return (at.path, finding.code, source_line(at.path, at.line).strip())


def load(file: Path) -> Counter[Key]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}")
        return Counter({(e["path"], e["code"], e["text"]): int(e["count"]) for e in data["findings"]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"the baseline {file} cannot be read: {error}") from error


def save(file: Path, known: Counter[Key]) -> None:
    entries = [{"path": p, "code": c, "text": t, "count": n} for (p, c, t), n in sorted(known.items()) if n > 0]
    text = json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False)
    try:
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the baseline {file} cannot be written: {error.strerror}") from error


def split(findings: list[Finding], known: Counter[Key]) -> tuple[list[Finding], Counter[Key]]:
    """Findings that the baseline does not know, and the part of the baseline that is still needed."""
    left = Counter(known)
    used: Counter[Key] = Counter()
    new = []
    for finding in findings:
        key = key_of(finding)
        if left[key] > 0:
            left[key] -= 1
            used[key] += 1
        else:
            new.append(finding)
    return new, used

"""The JSON report, schema torchsan/1."""

from __future__ import annotations

import json

from torchsan.model import Report
from torchsan.report import Options


def render(report: Report, options: Options) -> str:
    return json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n"

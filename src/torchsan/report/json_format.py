"""The JSON report, schema torchsan/1."""

from __future__ import annotations

import json

from torchsan.model import Report
from torchsan.report import Options
from torchsan.report.shown import shown_part


def render(report: Report, options: Options) -> str:
    data = shown_part(report, options).as_json()
    timeline = data.pop("timeline", None)
    text = json.dumps(data, indent=2, ensure_ascii=False)
    if timeline is not None:
        # Rows of numbers, by the hundred thousand: one line of text, not one line a number.
        compact = json.dumps(timeline, ensure_ascii=False, separators=(",", ":"))
        text = f'{text.removesuffix("}").rstrip()},\n  "timeline": {compact}\n}}'
    return text + "\n"

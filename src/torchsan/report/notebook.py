"""A report as a notebook shows it: the full text in the notebook's own font, coloured, no script."""

from __future__ import annotations

import io

from torchsan.model import Report

_BLOCK = '<pre style="line-height:1.35;overflow-x:auto;white-space:pre">{code}</pre>'


def fragment(report: Report) -> str:
    from rich.console import Console

    from torchsan.report import Options
    from torchsan.report.full import lines

    console = Console(
        file=io.StringIO(),
        record=True,
        width=140,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        force_jupyter=False,
    )
    for line in lines(report, Options()):
        console.print(line, soft_wrap=True, highlight=False)
    if not report.visible():
        console.print("torchsan: nothing found", style="green")
    return console.export_html(inline_styles=True, code_format=_BLOCK)

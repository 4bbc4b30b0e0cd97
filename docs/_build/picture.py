"""Makes docs/images/demo.svg: the terminal report of the demo program, as `make demo` shows it."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

from rich.console import Console

import torchsan
from torchsan.report import Options
from torchsan.report.full import lines

ROOT = Path(__file__).parent.parent.parent


def main() -> None:
    block = torchsan.watch()
    with contextlib.suppress(RuntimeError), block, contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(ROOT / "examples" / "residual_net.py"), run_name="__main__")
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    console.print("[bold]$ torchsan run examples/residual_net.py[/bold]\n", highlight=False)
    for line in lines(block.report, Options(width=110)):
        console.print(line, highlight=False)
    target = ROOT / "docs" / "images" / "demo.svg"
    target.parent.mkdir(exist_ok=True)
    picture = console.export_svg(title="torchsan")
    # The fonts of the reader's machine do; nothing is fetched from elsewhere.
    target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S))


if __name__ == "__main__":
    main()

"""Makes docs/images/demo.svg: the terminal report of the demo program, as `make demo` shows it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from torchsan.model import Report
from torchsan.report import Options
from torchsan.report.full import lines

ROOT = Path(__file__).parent.parent.parent


def main() -> None:
    command = [sys.executable, "-m", "torchsan", "fix", "--format", "json", "examples/residual_net.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    report = Report.from_json(json.loads(done.stdout))
    console = Console(record=True, width=126, file=io.StringIO(), force_terminal=True)
    console.print("[bold]$ torchsan fix examples/residual_net.py[/bold]\n", highlight=False)
    for line in lines(report, Options(width=124)):
        console.print(line, highlight=False)
    target = ROOT / "docs" / "images" / "demo.svg"
    target.parent.mkdir(exist_ok=True)
    picture = console.export_svg(title="torchsan")
    # The fonts of the reader's machine do; nothing is fetched from elsewhere.
    target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S))


if __name__ == "__main__":
    main()

"""What every verb does with its report: `--format`, `--output`, exit codes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TextIO

from torchsan.errors import UsageError
from torchsan.model import Report
from torchsan.report import FORMATS, Options, render

CLEAN, FOUND, FAILED = 0, 1, 2


def add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("report")
    group.add_argument("--format", choices=sorted(FORMATS), default="full", help="how findings are shown")
    group.add_argument("--output", metavar="FILE", help="write the report to FILE instead of the terminal")
    group.add_argument("--color", choices=["auto", "always", "never"], default="auto")
    group.add_argument("--possible", action="store_true", help="show findings that are only possible, too")


def check_output(args: argparse.Namespace) -> None:
    """Refuse an output file that cannot be written before any work is done."""
    if not args.output:
        return
    folder = os.path.dirname(os.path.abspath(args.output))
    if not os.path.isdir(folder):
        raise UsageError(f"--output: there is no folder {folder}")
    if os.path.isdir(args.output):
        raise UsageError(f"--output: {args.output} is a folder")
    if not os.access(args.output if os.path.exists(args.output) else folder, os.W_OK):
        raise UsageError(f"--output: {args.output} cannot be written")
    args.output = os.path.abspath(args.output)


def _wants_color(args: argparse.Namespace, stream: object) -> bool:
    if args.color != "auto" or args.output:
        return bool(args.color == "always")
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or bool(getattr(stream, "isatty", lambda: False)())


def emit(report: Report, args: argparse.Namespace, *, stream: TextIO | None = None) -> None:
    """Write the report where the user asked for it; by default to standard output."""
    target = stream or sys.stdout
    options = Options(
        color=_wants_color(args, target),
        width=max(60, min(140, shutil.get_terminal_size((110, 40)).columns)),
        possible=args.possible,
    )
    text = render(report, args.format, options)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text)
    elif text:
        target.write(text)
        target.flush()

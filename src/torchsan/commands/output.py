"""What every verb does with its report: `--format`, `--output`, exit codes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TextIO

from torchsan.console import say
from torchsan.errors import UsageError
from torchsan.model import Report
from torchsan.report import FORMATS, Options, render

CLEAN, FOUND, FAILED = 0, 1, 2


def add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("report")
    group.add_argument("--format", choices=sorted(FORMATS), default="full", help="how findings are shown")
    group.add_argument("--output", metavar="FILE", help="write the report to FILE instead of the terminal")
    group.add_argument("--html", metavar="FILE", help="also write the report to FILE as a page for the browser")
    group.add_argument("--color", choices=["auto", "always", "never"], default="auto")
    group.add_argument("--possible", action="store_true", help="show findings that are only possible, too")


def check_output(args: argparse.Namespace) -> None:
    """Refuse output files that cannot be written before any work is done."""
    for option in ("output", "html"):
        if path := getattr(args, option):
            setattr(args, option, _writable(f"--{option}", path))


def _writable(option: str, path: str) -> str:
    """The absolute path, since programs may change directory; else a UsageError."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{option}: there is no folder {folder}")
    if os.path.isdir(path):
        raise UsageError(f"{option}: {path} is a folder")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise UsageError(f"{option}: {path} cannot be written")
    return os.path.abspath(path)


def _write(path: str, text: str) -> None:
    # A path on Linux need not be UTF-8; the report about it must be.
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _wants_color(args: argparse.Namespace, stream: TextIO) -> bool:
    if args.color != "auto" or args.output:
        return bool(args.color == "always")
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def emit(report: Report, args: argparse.Namespace, *, stream: TextIO | None = None) -> None:
    """Write the report where the user asked for it; by default to standard output."""
    target = stream or sys.stdout
    options = Options(
        color=_wants_color(args, target),
        width=max(60, min(140, shutil.get_terminal_size((110, 40)).columns)),
        possible=args.possible,
    )
    if args.html:
        _write(args.html, render(report, "html", options))
    text = render(report, args.format, options)
    if args.output:
        _write(args.output, text)
    elif text:
        say(text, target)

"""`torchsan merge DIR`: one report of the records that `run --run-dir` left, of one machine or of several."""

from __future__ import annotations

import argparse
import os

from torchsan.commands.output import CLEAN, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the folder given to `run --run-dir`")
    add_output_options(parser)


def execute(args: argparse.Namespace) -> int:
    from torchsan.processes.merging import merge
    from torchsan.processes.reading import read_folder

    check_output(args)
    if not os.path.isdir(args.folder):
        raise UsageError(f"there is no folder {args.folder}")
    records = read_folder(args.folder)
    if not records:
        raise UsageError(f"{args.folder} holds no records of a run")
    report = merge(records)
    report.command = report.command or ["merge", args.folder]
    emit(report, args)
    return FOUND if report.alarms else CLEAN

"""`torchsan lsp`: the language server, on standard input and output."""

from __future__ import annotations

import argparse
import importlib.util

from torchsan.commands.output import CLEAN
from torchsan.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stdio", action="store_true", help="the only way of talking, and the default")


def execute(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("pygls") is None:
        raise UsageError("the language server needs pygls: pip install 'torchsan[lsp]'")
    from torchsan.plugins.lsp import make_server

    make_server().start_io()
    return CLEAN

"""`torchsan native`: build the native part of the recorder, or tell whether it is in use."""

from __future__ import annotations

import argparse

from torchsan.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["status", "build"], help="tell whether it is in use, or compile it now")


def execute(args: argparse.Namespace) -> int:
    try:
        from torchsan.observe import native

        if args.action == "build":
            _build()
        print(f"native part: {native.status()}")
    except ImportError as error:
        raise UsageError(f"the native part needs torch: {error}") from None
    return 0


def _build() -> None:
    from torchsan.observe import native

    if native.is_built():
        return
    print("compiling, about a minute …", flush=True)
    try:
        native.build()
    except (RuntimeError, OSError) as error:
        first = str(error).strip().splitlines()[:1] or [""]
        raise UsageError(f"the native part could not be built: {first[0]}") from None

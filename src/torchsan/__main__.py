"""The command line: `torchsan VERB …`, also as `python -m torchsan`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from torchsan.commands import VERBS
from torchsan.errors import UsageError
from torchsan.version import __version__

USAGE = "usage: torchsan VERB …   (torchsan --help lists the verbs)"


class _Parser(argparse.ArgumentParser):
    """Argument errors are one sentence, not a screen of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _help() -> str:
    verbs = "\n".join(f"  {name:<9} {text}" for name, text in VERBS.items())
    return (
        "usage: torchsan VERB …\n\nA sanitizer for PyTorch programs.\n\n"
        f"verbs:\n{verbs}\n\ntorchsan VERB --help tells the options of a verb.\n"
    )


def _dispatch(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        print(f"torchsan {__version__}")
        return 0
    verb = argv[0]
    if verb not in VERBS:
        raise UsageError(f"there is no verb {verb!r}; the verbs are {', '.join(VERBS)}")
    module = importlib.import_module(f"torchsan.commands.{verb}")
    parser = _Parser(prog=f"torchsan {verb}", description=VERBS[verb])
    module.configure(parser)
    code: int = module.execute(parser.parse_args(argv[1:]))
    return code


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return _dispatch(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        print(f"torchsan: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output went away (`torchsan check | head`): not worth a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: `torchsan VERB …`, also as `python -m torchsan`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Sequence
from typing import NoReturn

from torchsan.commands import RUNS_PROGRAMS, VERBS
from torchsan.console import say
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


def _print_versions() -> None:
    print(f"python {platform.python_version()}")
    try:
        import torch

        from torchsan.observe import native
    except ImportError:
        print("torch: not installed")
        return
    print(f"torch {torch.__version__}")
    print(f"native part: {native.status()}")


def _dispatch(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        say(_help(), sys.stdout)
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        print(f"torchsan {__version__}")
        if "-v" in argv[1:] or "--verbose" in argv[1:]:
            _print_versions()
        return 0
    verb = argv[0]
    if verb not in VERBS:
        raise UsageError(f"there is no verb {verb!r}; the verbs are {', '.join(VERBS)}")
    if verb in RUNS_PROGRAMS:
        _refuse_what_cannot_be_served(verb)
    module = importlib.import_module(f"torchsan.commands.{verb}")
    parser = _Parser(prog=f"torchsan {verb}", description=VERBS[verb])
    module.configure(parser)
    code: int = module.execute(parser.parse_args(argv[1:]))
    return code


def _refuse_what_cannot_be_served(verb: str) -> None:
    # What we replace and log while a program runs is guarded by the interpreter's lock.
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise UsageError(f"`torchsan {verb}` needs a Python with its global lock; this is a free-threaded build")
    # `run` leaves it to the program to import torch.
    if verb != "run" and importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"`torchsan {verb}` runs models and needs torch, which is not installed here:"
            " install the torch of your choice, or torchsan[torch]"
        )


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
    except Exception as error:
        # A program's own exceptions do not come this far: this is a mistake of ours.
        if os.environ.get("TORCHSAN_DEBUG"):
            raise
        print(
            f"torchsan: internal error: {type(error).__name__}: {error} (TORCHSAN_DEBUG=1 shows where)",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())

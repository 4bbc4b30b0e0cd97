"""Run by every Python that a watched program starts: this folder is on its PYTHONPATH. Follows it, then steps aside."""

import importlib
import os
import sys


def _follow() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    home = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    try:
        from torchsan.processes import child
    except ImportError:
        sys.path.append(home)
        try:
            from torchsan.processes import child
        finally:
            sys.path.remove(home)
    child.begin()


def _own() -> None:
    """The sitecustomize that would have been run without us."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


try:
    _follow()
except Exception as error:
    if os.environ.get("TORCHSAN_DEBUG"):
        raise
    print(f"torchsan: process {os.getpid()} could not be followed ({type(error).__name__})", file=sys.stderr)
_own()

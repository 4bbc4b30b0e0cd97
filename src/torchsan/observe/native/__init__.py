"""The native part: where it is kept, how it is built, whether it is in use.

It is built once, by `torchsan native build`, for one torch and one Python, into the user's cache folder. A run only
ever loads what is there: it neither waits for a compiler nor starts one. Without it the sensor in Python serves.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

NAME = "torchsan_writes"
SOURCE = Path(__file__).with_name("writes.cpp")
HEADERS = [SOURCE.with_name("frames.h"), SOURCE.with_name("nodes.h")]
# `TORCHSAN_NATIVE=0` keeps to the sensor in Python.
SWITCH = "TORCHSAN_NATIVE"

_loaded: dict[str, ModuleType | str] = {}


def folder() -> Path:
    """One folder for each torch, Python and source."""
    import torch

    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    text = b"".join(part.read_bytes() for part in (SOURCE, *HEADERS))
    digest = hashlib.sha256(text).hexdigest()[:12]
    return Path(base) / "torchsan" / "native" / f"{torch.__version__}-{sys.implementation.cache_tag}-{digest}"


def library() -> Path:
    return folder() / f"{NAME}.so"


def is_built() -> bool:
    """Is a library for this torch, Python and source in the cache, and does it load?"""
    return isinstance(_load(str(library())), ModuleType)


def load() -> ModuleType | None:
    """The native part, if it is wanted, built, and fits; None otherwise."""
    if os.environ.get(SWITCH) == "0":
        return None
    found = _load(str(library()))
    return found if isinstance(found, ModuleType) else None


def _load(path: str) -> ModuleType | str:
    known = _loaded.get(path)
    if known is None:
        known = _loaded[path] = _import(path)
    return known


def _import(path: str) -> ModuleType | str:
    if not os.path.exists(path):
        return "not built"
    try:
        loader = importlib.machinery.ExtensionFileLoader(NAME, path)
        spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except Exception as error:
        return f"it does not load: {type(error).__name__}: {error}"
    return module


def status() -> str:
    """One phrase for people."""
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH}=0"
    found = _load(str(library()))
    if isinstance(found, ModuleType):
        return f"in use ({library()})"
    if found == "not built":
        return "not built, the sensor in Python serves; where a C++ compiler is, `torchsan native build` makes it"
    return f"not in use: {found}"


def build() -> Path:
    """Compile it now. Takes about a minute; what the compiler says goes to the terminal if it fails."""
    from torch.utils import cpp_extension

    target = library()
    work = target.parent / f"build-{os.getpid()}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        cpp_extension.load(
            NAME,
            [str(SOURCE)],
            extra_cflags=["-O2", "-fvisibility=hidden"],
            extra_include_paths=[str(SOURCE.parent)],
            build_directory=str(work),
            is_python_module=False,
        )
        # Into place at once, so that no run ever sees half a library.
        os.replace(work / f"{NAME}.so", target)
    finally:
        for left in work.glob("*"):
            left.unlink()
        work.rmdir()
    _loaded.clear()
    return target

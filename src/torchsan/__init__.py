"""torchsan: a sanitizer for PyTorch programs.

Names are loaded when first used: importing torchsan costs nothing and does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchsan.version import __version__

if TYPE_CHECKING:
    from torchsan.fix.api import fix
    from torchsan.observe.api import freeze, heal, thaw, watch
    from torchsan.verify.api import verify

_HOMES = dict.fromkeys(("watch", "heal", "freeze", "thaw"), "torchsan.observe.api")
# Where `%load_ext torchsan` looks.
_HOMES |= dict.fromkeys(("load_ipython_extension", "unload_ipython_extension"), "torchsan.plugins.ipython")
# These packages are the functions: see torchsan/verify/__init__.py.
_CALLABLE_PACKAGES = ("fix", "verify")

__all__ = ["__version__", "fix", "freeze", "heal", "thaw", "verify", "watch"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _CALLABLE_PACKAGES:
        raise AttributeError(f"module 'torchsan' has no attribute {name!r}")
    import importlib

    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"torchsan.{name}")
    return getattr(importlib.import_module(_HOMES[name]), name)

"""torchsan: a sanitizer for PyTorch programs.

Names are loaded when first used: importing torchsan costs nothing and does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchsan.version import __version__

if TYPE_CHECKING:
    from torchsan.observe.api import freeze, heal, thaw, watch
    from torchsan.verify.api import verify

_HOMES = dict.fromkeys(("watch", "heal", "freeze", "thaw"), "torchsan.observe.api")
# Where `%load_ext torchsan` looks.
_HOMES |= dict.fromkeys(("load_ipython_extension", "unload_ipython_extension"), "torchsan.plugins.ipython")

__all__ = ["__version__", "freeze", "heal", "thaw", "verify", "watch"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name != "verify":
        raise AttributeError(f"module 'torchsan' has no attribute {name!r}")
    import importlib

    if name == "verify":
        # The package is the function: see torchsan/verify/__init__.py.
        return importlib.import_module("torchsan.verify")
    return getattr(importlib.import_module(_HOMES[name]), name)

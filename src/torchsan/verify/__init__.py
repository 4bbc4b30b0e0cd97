"""Is the captured model the model?

`torchsan.verify` is both this package and the function of the public API: the module object can be called,
so that the name means the same whichever was imported first.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_HOMES = {
    "verify": "torchsan.verify.api",
    "on_the_spot": "torchsan.verify.spot",
    "before_capture": "torchsan.verify.spot",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


class _CallablePackage(ModuleType):
    def __call__(self, model: Any, args: Any = (), kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        """Capture `model` in every way, compare with eager; see `torchsan.verify.api.verify`."""
        from torchsan.verify.api import verify

        return verify(model, args, kwargs, **options)


sys.modules[__name__].__class__ = _CallablePackage

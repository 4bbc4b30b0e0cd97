"""Candidate edits, proof by running, choice, diff.

`torchsan.fix` is both this package and the function of the public API: the module object can be called, so that
the name means the same whichever was imported first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchsan.fix.api import Mended


class _CallablePackage(ModuleType):
    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Mended:
        """Find and prove the smallest edit that makes `function(*args)` right; see `torchsan.fix.api.fix`."""
        from torchsan.fix.api import fix

        return fix(function, *args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage

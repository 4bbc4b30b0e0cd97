"""What the parts of the model of torch share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchsan.check.following.machine import Machine

Args = list[Any]
Kwargs = dict[str, Any]


class TorchParts:
    """`TorchModel` puts the parts together."""

    machine: Machine
    interpreter: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Methods of the other parts."""

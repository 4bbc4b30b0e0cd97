"""What calls into torch do to the machine: functions, tensor methods, layers, optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchsan.check.modelling.modules import TorchModules
from torchsan.check.modelling.ops import TorchOps
from torchsan.check.modelling.tensor_methods import TensorMethods

if TYPE_CHECKING:
    from torchsan.check.following.machine import Machine


class TorchModel(TorchOps, TensorMethods, TorchModules):
    """Calls into torch. `interpreter` runs functions of the program where torch calls back."""

    def __init__(self, machine: Machine, interpreter: Any) -> None:
        self.machine = machine
        self.interpreter = interpreter

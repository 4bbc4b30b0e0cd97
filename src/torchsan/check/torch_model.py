"""What calls into torch do to the machine: functions, tensor methods, layers, optimizers."""

from __future__ import annotations

from typing import Any

from torchsan.check.machine import Machine
from torchsan.check.tensor_methods import TensorMethods
from torchsan.check.torch_modules import TorchModules
from torchsan.check.torch_ops import TorchOps


class TorchModel(TorchOps, TensorMethods, TorchModules):
    """Calls into torch. `interpreter` runs functions of the program where torch calls back."""

    def __init__(self, machine: Machine, interpreter: Any) -> None:
        self.machine = machine
        self.interpreter = interpreter

"""Lightning: `Trainer(callbacks=[TorchsanCallback()])` watches the first training steps."""

from __future__ import annotations

import sys
from typing import Any

from torchsan.model import Report
from torchsan.plugins.first_steps import FirstSteps

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class TorchsanCallback(Callback):  # type: ignore[misc]
    """Watches the first `steps` batches, prints what it finds, then steps aside at no cost.

    `report` holds the findings. With `strict` a finding stops the training.
    """

    def __init__(self, steps: int = 10, *, strict: bool = False) -> None:
        super().__init__()
        self._steps = FirstSteps(steps, strict=strict)

    @property
    def report(self) -> Report:
        return self._steps.report

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps.restart()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._steps.step_begins()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._steps.step_ended()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._steps.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._steps.finish(exception)

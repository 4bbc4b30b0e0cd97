"""Transformers: `Trainer(..., callbacks=[TorchsanCallback()])` watches the first training steps."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from torchsan.model import Report
from torchsan.plugins.first_steps import FirstSteps


class TorchsanCallback(TrainerCallback):  # type: ignore[misc]
    """Watches the first `steps` optimizer steps, prints what it finds, then steps aside at no cost.

    `report` holds the findings. With `strict` a finding stops the training.
    """

    def __init__(self, steps: int = 10, *, strict: bool = False) -> None:
        self._steps = FirstSteps(steps, strict=strict)

    @property
    def report(self) -> Report:
        return self._steps.report

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.restart()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.step_ended()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.finish()

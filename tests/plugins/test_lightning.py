"""The callback in a real Lightning trainer, with tiny models."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from torchsan.errors import UsageError
from torchsan.observe import api

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning.pytorch", reason="needs lightning", exc_type=ImportError)

from torchsan.plugins.first_steps import FindingsError
from torchsan.plugins.lightning import TorchsanCallback

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Tiny(lightning.LightningModule):  # type: ignore[name-defined, misc]
    """What goes wrong in a step is chosen by `hazard`."""

    def __init__(self, hazard: str = "") -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.hazard = hazard
        self.watched: list[bool] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.watched.append(api.current() is not None)
        gate = torch.sigmoid(self.layer(batch[0]))
        if self.hazard == "loud":
            gate += 1
        if self.hazard == "unknown":
            raise KeyError("mine")
        loss = gate.sum()
        if self.hazard == "silent":
            gate.data.fill_(5.0)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def _fit(model: Tiny, callback: TorchsanCallback | None) -> dict[str, torch.Tensor]:
    data = torch.utils.data.TensorDataset(torch.linspace(0, 1, 48).reshape(12, 4))
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback] if callback else [],
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=2))
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def test_the_first_steps_are_watched_and_nothing_changes() -> None:
    torch.manual_seed(0)
    plain = _fit(Tiny(), None)
    torch.manual_seed(0)
    model, callback = Tiny(), TorchsanCallback(steps=2)
    watched = _fit(model, callback)
    assert model.watched == [True, True, False, False, False, False]
    assert callback.report.findings == []
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_a_silent_hazard_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    callback = TorchsanCallback(steps=3)
    _fit(Tiny("silent"), callback)
    assert [finding.code for finding in callback.report.findings] == ["TS201"]
    assert capfd.readouterr().err.count("[TS201]") == 1


def test_strict_stops_the_training() -> None:
    model = Tiny("silent")
    with pytest.raises(FindingsError, match="TS201"):
        _fit(model, TorchsanCallback(strict=True))
    assert len(model.watched) == 1
    assert api.current() is None


def test_an_error_of_torch_is_explained() -> None:
    callback = TorchsanCallback()
    with pytest.raises(RuntimeError, match=r"error\[TS101\]: `gate` was overwritten"):
        _fit(Tiny("loud"), callback)
    assert api.current() is None
    assert [finding.code for finding in callback.report.findings] == ["TS101"]


def test_an_error_of_the_user_is_left_alone() -> None:
    with pytest.raises(KeyError, match=r"^'mine'$"):
        _fit(Tiny("unknown"), TorchsanCallback())
    assert api.current() is None


def test_steps_must_be_positive() -> None:
    with pytest.raises(UsageError, match="steps must be 1 or more"):
        TorchsanCallback(steps=0)

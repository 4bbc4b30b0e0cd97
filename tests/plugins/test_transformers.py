"""The callback in a real Transformers trainer, with a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torchsan.observe import api

transformers = pytest.importorskip("transformers", reason="needs transformers", exc_type=ImportError)
pytest.importorskip("accelerate", reason="the trainer of transformers needs accelerate")

from torchsan.plugins.first_steps import FindingsError  # noqa: E402
from torchsan.plugins.transformers import TorchsanCallback  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Tiny(torch.nn.Module):
    """What goes wrong in a step is chosen by `hazard`."""

    def __init__(self, hazard: str = "") -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.hazard = hazard
        self.watched: list[bool] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.watched.append(api.current() is not None)
        gate = torch.sigmoid(self.layer(x))
        if self.hazard == "loud":
            gate += 1
        loss = (gate.sum(-1) - labels).square().mean()
        if self.hazard == "silent":
            gate.data.fill_(5.0)
        return {"loss": loss, "logits": gate}


def _train(model: Tiny, callback: TorchsanCallback | None, folder: Path) -> dict[str, torch.Tensor]:
    data: list[dict[str, Any]] = [{"x": torch.full((4,), n / 12), "labels": torch.tensor(1.0)} for n in range(12)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=6,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        max_grad_norm=0.0,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=data, callbacks=[callback] if callback else []
    )
    trainer.train()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def test_the_first_steps_are_watched_and_nothing_changes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = _train(Tiny(), None, tmp_path)
    torch.manual_seed(0)
    model, callback = Tiny(), TorchsanCallback(steps=2)
    watched = _train(model, callback, tmp_path)
    assert model.watched == [True, True, False, False, False, False]
    assert callback.report.findings == []
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_a_silent_hazard_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    callback = TorchsanCallback(steps=3)
    _train(Tiny("silent"), callback, tmp_path)
    assert [finding.code for finding in callback.report.findings] == ["TS201"]
    assert capfd.readouterr().err.count("[TS201]") == 1


def test_strict_stops_the_training(tmp_path: Path) -> None:
    model = Tiny("silent")
    with pytest.raises(FindingsError, match="TS201"):
        _train(model, TorchsanCallback(strict=True), tmp_path)
    assert len(model.watched) == 1
    assert api.current() is None


def test_an_error_of_torch_is_explained_and_the_next_run_starts_afresh(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    callback = TorchsanCallback(steps=2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _train(Tiny("loud"), callback, tmp_path)
    assert "error[TS101]: `gate` was overwritten" in capfd.readouterr().err
    model = Tiny()
    _train(model, callback, tmp_path)
    assert model.watched == [True, True, False, False, False, False]
    assert callback.report.findings == []
    assert api.current() is None

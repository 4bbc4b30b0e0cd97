"""Lightning, Accelerate and transformers' Trainer on two ranks: as without us, and a fault of one rank is told of it."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

import pytest
from ranks import run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HEAD = """
import logging
import os
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
os.environ.setdefault("TORCHELASTIC_RUN_ID", "test")  # as a launcher sets it
import torch

RANK = int(os.environ["RANK"])
torch.manual_seed(0)


def gated(layer, x):
    gate = torch.sigmoid(layer(x))
    loss = gate.square().mean()
    if RANK == 1:
        gate.data.mul_(1.5)  # write
    return loss


def told(module):
    print(" ".join(f"{p.double().sum().item():.12f}" for p in module.parameters()))


rows = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 64).reshape(16, 4))
"""

LIGHTNING = """
import lightning.pytorch as lightning


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def training_step(self, batch, index):
        return gated(self.layer, batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


model = Model()
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=2))
told(model)
"""

ACCELERATE = """
from accelerate import Accelerator
from accelerate.state import AcceleratorState

# The process that the ranks were forked from may have had one of its own, alone.
AcceleratorState._reset_state(True)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(rows, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (x,) in loader:
    loss = gated(model, x)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
told(model)
"""

TRANSFORMERS = """
import tempfile

from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return {"loss": gated(self.layer, x)}


model = Model()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=2, num_train_epochs=1, use_cpu=True, report_to=[], save_strategy="no",
        logging_strategy="no", disable_tqdm=True, ddp_backend="gloo", seed=0,
    )
    Trainer(model, arguments, train_dataset=[{"x": row[0]} for row in rows]).train()
told(model)
"""

PROGRAMS = {"lightning.pytorch": LIGHTNING, "accelerate": ACCELERATE, "transformers": TRANSFORMERS}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_two_ranks_of_a_framework(tmp_path: Path, framework: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(framework, exc_type=ImportError)
        # Once here, before the ranks are forked.
        importlib.import_module({"transformers": "transformers.trainer"}.get(framework, framework))
    path = tmp_path / "train.py"
    path.write_text(HEAD.lstrip("\n") + PROGRAMS[framework])
    plain, watched = run_ranks(path, watched=False), run_ranks(path)
    assert plain.statuses == [0, 0], plain.outputs
    assert watched.statuses == [0, 0], watched.outputs
    assert [_weights(text) for text in watched.outputs] == [_weights(text) for text in plain.outputs]
    assert _weights(plain.outputs[0]) == _weights(plain.outputs[1])
    written = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# write"))
    # The value was saved twice: by the sigmoid and by the square.
    found = {(f.code, f.primary.line, f.ranks) for f in watched.report.findings if f.certainty != "possible"}
    assert found == {("TS201", written, (1,))}
    assert not [note for note in watched.report.notes if "internal error" in note]


def _weights(output: str) -> str:
    return output.strip().splitlines()[-1]

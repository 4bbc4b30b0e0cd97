"""Frame-wise speech activity scoring with a gated temporal encoder."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    mels: int = 20
    width: int = 32
    frames: int = 24
    batch: int = 8
    steps: int = 6
    lr: float = 3e-3


class GatedConv(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Conv1d(width, width, 3, padding=1)
        self.gate = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.gate(x))
        y = self.value(x) * gate
        gate *= keep.unsqueeze(1)
        density = gate.mean(dim=2, keepdim=True)
        return x + y * (1.0 + density)


class Detector(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.stem = nn.Conv1d(cfg.mels, cfg.width, 1)
        self.blocks = nn.ModuleList(GatedConv(cfg.width) for _ in range(2))
        self.head = nn.Conv1d(cfg.width, 1, 1)

    def forward(self, mel: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        h = self.stem(mel)
        for block in self.blocks:
            h = block(h, keep)
        return self.head(h).squeeze(1)


def batches(cfg: Config):
    gen = torch.Generator().manual_seed(11)
    for _ in range(cfg.steps):
        mel = torch.randn(cfg.batch, cfg.mels, cfg.frames, generator=gen)
        length = torch.randint(12, cfg.frames + 1, (cfg.batch,), generator=gen)
        keep = (torch.arange(cfg.frames)[None] < length[:, None]).float()
        speech = (mel[:, :4].mean(1) > 0).float()
        yield mel, keep, speech


def train(cfg: Config) -> None:
    torch.manual_seed(0)
    model = Detector(cfg)
    forward = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for step, (mel, keep, speech) in enumerate(batches(cfg)):
        logits = forward(mel, keep)
        loss = F.binary_cross_entropy_with_logits(logits, speech, weight=keep)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    train(Config())

"""Zero-shot classifier: class embeddings come from a frozen encoder and are adapted slowly."""
import torch
from torch import nn
from torch.nn import functional as F


class FrozenText(nn.Module):
    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens):
        return F.normalize(self.proj(self.embed(tokens).mean(1)), dim=1)


@torch.inference_mode()
def class_bank(encoder: FrozenText, prompts: torch.Tensor) -> torch.Tensor:
    bank = torch.stack([encoder(p) for p in prompts.unbind(1)]).mean(0)
    return F.normalize(bank, dim=1)


class Adapter(nn.Module):
    def __init__(self, inp: int, bank: torch.Tensor) -> None:
        super().__init__()
        self.image = nn.Linear(inp, bank.shape[1])
        self.bank = bank
        self.rate = 0.02

    def refine(self, z: torch.Tensor, labels: torch.Tensor) -> None:
        with torch.no_grad():
            mean = torch.zeros_like(self.bank).index_add_(0, labels, z.detach())
            self.bank.lerp_(F.normalize(mean, dim=1), self.rate)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        z = F.normalize(self.image(x), dim=1)
        logits = 8 * z @ self.bank.clone().T
        if labels is not None:
            self.refine(z, labels)
        return logits


class Pictures:
    def __init__(self, classes: int, inp: int) -> None:
        self.gen = torch.Generator().manual_seed(92)
        self.means = torch.randn(classes, inp, generator=self.gen)

    def draw(self, count: int):
        y = torch.randint(0, len(self.means), (count,), generator=self.gen)
        return self.means[y] + 0.4 * torch.randn(count, self.means.shape[1], generator=self.gen), y


def main() -> None:
    torch.manual_seed(90)
    encoder = FrozenText(50, 16).eval().requires_grad_(False)
    prompts = torch.randint(0, 50, (5, 3, 4))
    adapter = Adapter(10, class_bank(encoder, prompts))
    run = torch.compile(adapter, backend="aot_eager")
    optimizer = torch.optim.Adam(adapter.parameters(), lr=2e-2)
    data = Pictures(5, 10)
    for step in range(10):
        x, y = data.draw(32)
        loss = F.cross_entropy(run(x, y), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

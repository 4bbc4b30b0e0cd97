"""Training with callbacks, one of which keeps an average of the weights."""
import torch
import torch.nn.functional as F
from torch import nn


class Callback:
    def on_start(self, trainer): ...
    def on_step(self, trainer): ...
    def on_end(self, trainer): ...


class Polyak(Callback):
    def __init__(self, decay):
        self.decay = decay
        self.shadow = {}

    def on_start(self, trainer):
        for name, p in trainer.model.named_parameters():
            self.shadow[name] = p.data

    @torch.no_grad()
    def on_step(self, trainer):
        for name, p in trainer.model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)

    def on_end(self, trainer):
        trainer.averaged = {k: v.norm().item() for k, v in self.shadow.items()}


class Printer(Callback):
    def __init__(self, every):
        self.every = every

    def on_step(self, trainer):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step} loss {trainer.loss:.5f}")


class Trainer:
    def __init__(self, model, lr, callbacks):
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.step, self.loss, self.averaged = 0, 0.0, {}

    def emit(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def fit(self, batches):
        self.emit("on_start")
        for x, y in batches:
            loss = F.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.loss = loss.item()
            self.emit("on_step")
            self.step += 1
        self.emit("on_end")


def batches(n, seed):
    gen = torch.Generator().manual_seed(seed)
    weights = torch.randn(6, 1, generator=gen)
    for _ in range(n):
        x = torch.randn(32, 6, generator=gen)
        yield x, x @ weights + 0.1 * torch.randn(32, 1, generator=gen)


def main():
    torch.manual_seed(2)
    trainer = Trainer(nn.Linear(6, 1), 0.05, [Polyak(0.9), Printer(30)])
    trainer.fit(batches(150, 5))
    print("final loss", round(trainer.loss, 5), {k: round(v, 4) for k, v in trainer.averaged.items()})


if __name__ == "__main__":
    main()

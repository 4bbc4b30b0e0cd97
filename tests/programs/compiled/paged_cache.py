"""A paged cache that a custom operator writes; decoding in a compiled region with a fake kernel."""
import torch
from torch import nn


@torch.library.custom_op("paged::store_", mutates_args={"cache"})
def store_(cache: torch.Tensor, slot: int, value: torch.Tensor) -> None:
    cache[slot].copy_(value)


@torch.library.custom_op("paged::mean", mutates_args=())
def mean(cache: torch.Tensor, upto: int) -> torch.Tensor:
    return cache[:upto].mean(0)


@mean.register_fake
def _(cache, upto):
    return torch.empty_like(cache[0])


class Decoder(nn.Module):
    def __init__(self, width, slots):
        super().__init__()
        self.key, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.register_buffer("cache", torch.zeros(slots, width), persistent=False)

    def forward(self, x, slot):
        store_(self.cache, slot, self.key(x))
        context = mean(self.cache, slot + 1)
        h = self.out(x + context)
        h.relu_()
        return h


@torch.no_grad()
def main():
    torch.manual_seed(2)
    net = Decoder(4, 8).eval()
    step = torch.compile(net, backend="aot_eager", dynamic=True)
    for _ in range(2):
        x, heard = torch.randn(4), []
        for slot in range(6):
            x = step(x, slot)
            heard.append(x)
        print(torch.stack(heard).sum().item())
        net.cache.zero_()


if __name__ == "__main__":
    main()

"""Segmentation of blobs with a memory-saving activation that works in place."""
import torch
from torch import nn
from torch.nn import functional as F


class InPlaceLeaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, slope: float) -> torch.Tensor:
        ctx.slope = slope
        x.copy_(torch.where(x > 0, x, x * slope))
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, grad, grad * ctx.slope), None


class Conv(nn.Module):
    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inp, out, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return InPlaceLeaky.apply(self.conv(x), 0.1)


class SegNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = Conv(1, 8), Conv(8, 8), nn.Conv2d(8, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        h = self.a(image)
        return self.out(h + self.b(h)).squeeze(1)


def blobs(count: int, gen: torch.Generator):
    axis = torch.arange(14.0)
    cx, cy = torch.rand(2, count, 1, 1, generator=gen) * 10 + 2
    mask = ((axis[:, None] - cx).square() + (axis[None] - cy).square() < 9).float()
    image = mask.clone()
    image += 0.4 * torch.randn(image.shape, generator=gen)
    return image.unsqueeze(1), mask


def iou(logits: torch.Tensor, mask: torch.Tensor) -> float:
    on = (logits > 0).float()
    return ((on * mask).sum() / (on + mask - on * mask).sum()).item()


def main() -> None:
    torch.manual_seed(110)
    gen = torch.Generator().manual_seed(111)
    net = SegNet()
    run = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(15):
        image, mask = blobs(8, gen)
        loss = F.binary_cross_entropy_with_logits(run(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1} loss {loss.item():.4f}")
    with torch.no_grad():
        image, mask = blobs(8, gen)
        print(f"iou {iou(run(image), mask):.3f}")


if __name__ == "__main__":
    main()

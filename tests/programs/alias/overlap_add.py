"""Windowed filtering of a signal by overlap-add."""
import torch


class OverlapAdd:
    def __init__(self, size, hop):
        self.size, self.hop = size, hop
        self.window = torch.hann_window(size, periodic=True).sqrt_()

    def analyse(self, signal):
        frames = signal.unfold(0, self.size, self.hop)
        weighted = frames * self.window
        weighted -= weighted.mean(1, keepdim=True)
        return weighted

    def synthesise(self, frames, length):
        out = torch.zeros(length)
        for i, frame in enumerate(frames):
            out[i * self.hop:i * self.hop + self.size].addcmul_(frame, self.window)
        return out


class LowPass:
    def __init__(self, size, keep):
        gain = torch.zeros(size // 2 + 1)
        gain[:keep] = 1.0
        gain[keep:keep + 3] = torch.tensor([0.75, 0.5, 0.25])
        self.gain, self.size = gain, size

    def __call__(self, frames):
        spectrum = torch.fft.rfft(frames)
        spectrum.mul_(self.gain)
        return torch.fft.irfft(spectrum, n=self.size)


def signal(length, gen):
    t = torch.arange(length) / 256.0
    low = torch.sin(2 * torch.pi * 9 * t)
    return low, low + 0.7 * torch.sin(2 * torch.pi * 90 * t) + 0.1 * torch.randn(length, generator=gen)


def main():
    gen = torch.Generator().manual_seed(0)
    low, mixed = signal(1024, gen)
    kept = mixed.clone()
    for size, hop in ((64, 32), (128, 64)):
        ola = OverlapAdd(size, hop)
        out = ola.synthesise(LowPass(size, size // 8)(ola.analyse(mixed)), len(mixed))
        inner = slice(size, -size)
        error = (out - low)[inner].pow(2).mean().item()
        print(f"size {size} error {error:.5f} before {(mixed - low)[inner].pow(2).mean().item():.5f}")
    print("input untouched", torch.equal(kept, mixed))


if __name__ == "__main__":
    main()

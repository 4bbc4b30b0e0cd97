"""Short-time spectral gate for a noisy tone."""
import math

import torch


class Framing:
    def __init__(self, size=64, hop=16):
        self.size, self.hop = size, hop
        self.window = torch.hann_window(size)

    def split(self, signal):
        frames = signal.unfold(0, self.size, self.hop)
        frames *= self.window
        return frames

    def join(self, frames, length):
        out = torch.zeros(length)
        norm = torch.zeros(length)
        for i, frame in enumerate(frames):
            at = i * self.hop
            out[at:at + self.size] += frame * self.window
            norm[at:at + self.size] += self.window ** 2
        return out / norm.clamp_min(1e-3)


class SpectralGate:
    def __init__(self, framing, quantile):
        self.framing = framing
        self.quantile = quantile

    def __call__(self, signal):
        spectrum = torch.fft.rfft(self.framing.split(signal))
        power = spectrum.abs()
        floor = power.quantile(self.quantile, dim=1, keepdim=True)
        gated = torch.where(power > floor, spectrum, torch.zeros_like(spectrum))
        return self.framing.join(torch.fft.irfft(gated, n=self.framing.size), len(signal))


def tone(length, generator):
    t = torch.arange(length) / 400.0
    clean = torch.sin(2 * math.pi * 31 * t) + 0.5 * torch.sin(2 * math.pi * 57 * t)
    return clean, clean + 0.5 * torch.randn(length, generator=generator)


def snr(clean, estimate, margin=64):
    clean, estimate = clean[margin:-margin], estimate[margin:-margin]
    return (10 * torch.log10(clean.pow(2).sum() / (clean - estimate).pow(2).sum())).item()


def main():
    gen = torch.Generator().manual_seed(0)
    clean, noisy = tone(1024, gen)
    for quantile in (0.5, 0.7, 0.85):
        gate = SpectralGate(Framing(), quantile)
        before = snr(clean, noisy)
        print(f"quantile {quantile}: {before:.2f} dB -> {snr(clean, gate(noisy.clone())):.2f} dB")


if __name__ == "__main__":
    main()

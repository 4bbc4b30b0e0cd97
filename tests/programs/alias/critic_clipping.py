"""Wasserstein critic with weight clipping on a two-dimensional mixture."""
import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = torch.tanh(self.second(h))
        return self.last(h).squeeze(-1)


class Generator(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.latent = latent
        self.net = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, n, gen):
        return self.net(torch.randn(n, self.latent, generator=gen))


class Clipper:
    def __init__(self, bound):
        self.bound = bound

    def __call__(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.clamp_(-self.bound, self.bound)


def real_batch(n, gen):
    centre = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0]])
    pick = torch.randint(3, (n,), generator=gen)
    return centre[pick] + 0.2 * torch.randn(n, 2, generator=gen)


def critic_step(critic, generator, optimizer, clip, gen):
    optimizer.zero_grad()
    fake = generator(64, gen).detach()
    gap = critic(real_batch(64, gen)).mean() - critic(fake).mean()
    critic.apply(clip)
    (-gap).backward()
    norm = sum(p.grad.pow(2).sum() for p in critic.parameters()).sqrt().item()
    optimizer.step()
    return gap.item(), norm


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(8)
    critic, generator = Critic(), Generator()
    clip = Clipper(0.1)
    c_opt = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    g_opt = torch.optim.RMSprop(generator.parameters(), lr=5e-3)
    for step in range(40):
        for _ in range(3):
            gap, norm = critic_step(critic, generator, c_opt, clip, gen)
        g_opt.zero_grad()
        (-critic(generator(64, gen)).mean()).backward()
        g_opt.step()
        if step % 10 == 0:
            print(f"step {step} gap {gap:.5f} critic gradient {norm:.5f}")
    print("generated spread", [round(v, 4) for v in generator(256, gen).std(0).tolist()])


if __name__ == "__main__":
    main()

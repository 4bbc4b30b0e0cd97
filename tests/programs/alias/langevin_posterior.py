"""Stochastic-gradient Langevin sampling of a small Bayesian regression."""
import argparse
import math

import torch


class Posterior:
    def __init__(self, n, dim, noise, generator):
        self.x = torch.randn(n, dim, generator=generator)
        self.truth = torch.linspace(-1.0, 1.0, dim)
        self.y = self.x @ self.truth + noise * torch.randn(n, generator=generator)
        self.noise = noise

    def log_prob(self, theta):
        residual = self.y - self.x @ theta
        return -0.5 * residual.pow(2).sum() / self.noise ** 2 - 0.5 * theta.pow(2).sum()


class Trace:
    def __init__(self, thin):
        self.thin = thin
        self.draws = []
        self.log_probs = []

    def record(self, step, theta, log_prob):
        if step % self.thin == 0:
            self.draws.append(theta.detach())
            self.log_probs.append(log_prob.item())

    def summary(self, burn):
        kept = torch.stack(self.draws[burn:])
        return kept.mean(0), kept.std(0)


class Langevin:
    def __init__(self, target, dim, step_size, generator):
        self.target = target
        self.step_size = step_size
        self.generator = generator
        self.theta = torch.zeros(dim, requires_grad=True)

    def step(self):
        log_prob = self.target.log_prob(self.theta)
        grad, = torch.autograd.grad(log_prob, self.theta)
        kick = torch.randn(self.theta.shape, generator=self.generator)
        with torch.no_grad():
            self.theta.add_(grad, alpha=0.5 * self.step_size)
            self.theta.add_(kick, alpha=math.sqrt(self.step_size))
        return log_prob


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--thin", type=int, default=10)
    parser.add_argument("--burn", type=int, default=20)
    args = parser.parse_args()

    gen = torch.Generator().manual_seed(3)
    target = Posterior(64, 5, 0.5, gen)
    chain = Langevin(target, 5, 1e-3, gen)
    trace = Trace(args.thin)
    for step in range(args.steps):
        log_prob = chain.step()
        trace.record(step, chain.theta, log_prob)
    mean, std = trace.summary(args.burn)
    print("draws kept  ", len(trace.draws) - args.burn)
    print("mean error  ", round((mean - target.truth).abs().mean().item(), 4))
    print("spread      ", [round(v, 4) for v in std.tolist()])
    print("log prob    ", round(trace.log_probs[0], 2), "->", round(trace.log_probs[-1], 2))


if __name__ == "__main__":
    main()

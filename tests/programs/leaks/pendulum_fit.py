import math
import sys

import torch


def rollout(theta0, omega0, g_over_l, damping, n, dt=0.05):
    th, om = theta0, omega0
    path = []
    for _ in range(n):
        acc = -g_over_l * torch.sin(th) - damping * om
        om = om + dt * acc
        th = th + dt * om
        path.append(th)
    return torch.stack(path)


class PendulumModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log_gl = torch.nn.Parameter(torch.tensor(math.log(5.0)))
        self.log_damp = torch.nn.Parameter(torch.tensor(math.log(0.5)))
        self.theta0 = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, n):
        return rollout(self.theta0, torch.zeros(()), self.log_gl.exp(), self.log_damp.exp(), n)


def calibrate(data, outer=12, tol=1e-12):
    model = PendulumModel()
    opt = torch.optim.LBFGS(model.parameters(), lr=0.4, max_iter=4, history_size=5,
                            tolerance_change=0.0, tolerance_grad=0.0)
    trace = []

    def closure():
        opt.zero_grad()
        cost = (model(data.numel()) - data).pow(2).mean()
        reg = 1e-4 * sum(p.pow(2) for p in model.parameters())
        objective = cost + reg
        objective.backward()
        trace.append(objective)
        return objective

    for k in range(outer):
        opt.step(closure)
        best = min(float(v) for v in trace)
        print("outer %02d  evals %03d  best %.6f" % (k, len(trace), best), file=sys.stderr)
        if best < tol:
            break
    return model, trace


def main():
    torch.manual_seed(2)
    truth = rollout(torch.tensor(0.9), torch.zeros(()), torch.tensor(9.81), torch.tensor(0.2), 30)
    data = (truth + 0.01 * torch.randn(30)).detach()
    model, trace = calibrate(data)
    print("g/l = %.3f  damping = %.3f" % (model.log_gl.exp().item(), model.log_damp.exp().item()))
    print("first %.4f last %.6f" % (float(trace[0]), float(trace[-1])))


if __name__ == "__main__":
    main()

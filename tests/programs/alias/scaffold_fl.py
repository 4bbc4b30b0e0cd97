"""SCAFFOLD on non-iid linear regression clients."""
import argparse

import torch
from torch import nn


class Client:
    def __init__(self, cid, x, y, template):
        self.cid, self.x, self.y = cid, x, y
        self.control = {k: torch.zeros_like(v) for k, v in template.named_parameters()}

    def train(self, model, server_control, lr, epochs, batch):
        start = {k: v.detach().clone() for k, v in model.named_parameters()}
        steps = 0
        for _ in range(epochs):
            for i in range(0, len(self.x), batch):
                loss = nn.functional.mse_loss(model(self.x[i : i + batch]).squeeze(-1), self.y[i : i + batch])
                model.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for k, p in model.named_parameters():
                        p -= lr * (p.grad - self.control[k] + server_control[k])
                steps += 1
        return self._update_control(model, start, server_control, lr, steps)

    @torch.no_grad()
    def _update_control(self, model, start, server_control, lr, steps):
        previous = self.control
        delta_w, delta_c = {}, {}
        for k, p in model.named_parameters():
            self.control[k].sub_(server_control[k]).add_((start[k] - p) / (steps * lr))
            delta_c[k] = self.control[k] - previous[k]
            delta_w[k] = p - start[k]
        return delta_w, delta_c


class Server:
    def __init__(self, model, clients):
        self.model, self.clients = model, clients
        self.control = {k: torch.zeros_like(v) for k, v in model.named_parameters()}

    def round(self, ids, lr, epochs, batch):
        weights = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        sum_w = {k: torch.zeros_like(v) for k, v in weights.items()}
        sum_c = {k: torch.zeros_like(v) for k, v in weights.items()}
        for cid in ids:
            self.model.load_state_dict(weights)
            dw, dc = self.clients[cid].train(self.model, self.control, lr, epochs, batch)
            for k in sum_w:
                sum_w[k] += dw[k]
                sum_c[k] += dc[k]
        self.model.load_state_dict({k: w + sum_w[k] / len(ids) for k, w in weights.items()})
        for k in self.control:
            self.control[k] += sum_c[k] / len(self.clients)

    @torch.no_grad()
    def loss(self):
        return sum(nn.functional.mse_loss(self.model(c.x).squeeze(-1), c.y).item() for c in self.clients) / len(self.clients)


def make_clients(n, template, gen):
    clients = []
    for cid in range(n):
        x = torch.randn(32, 4, generator=gen) + cid
        w = torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.5 * torch.randn(4, generator=gen)
        clients.append(Client(cid, x, x @ w, template))
    return clients


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(9)
    model = nn.Linear(4, 1)
    server = Server(model, make_clients(4, model, gen))
    for r in range(args.rounds):
        ids = torch.randperm(4, generator=gen)[:3].tolist()
        server.round(ids, args.lr, 2, 8)
        norm = sum(c.norm().item() for c in server.control.values())
        print(f"round {r} loss {server.loss():.4f} control {norm:.4f}")


if __name__ == "__main__":
    main()

"""One server, a few clients, plain federated averaging with personal evaluation."""
import torch
import torch.nn.functional as F
from torch import nn


class Client:
    def __init__(self, ident, shift, gen):
        self.ident = ident
        self.x = torch.randn(60, 4, generator=gen) + shift
        self.y = (self.x[:, 0] - self.x[:, 1] * shift > shift).long()
        self.model = nn.Linear(4, 2)

    def receive(self, weights):
        self.model.load_state_dict(weights)

    def train(self, steps=15, lr=0.2):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(self.model(self.x), self.y).backward()
            optimizer.step()
        return self.model.state_dict()

    @torch.no_grad()
    def personal_loss(self):
        return F.cross_entropy(self.model(self.x), self.y).item()


def average(states):
    mean = states[0]
    for key in mean:
        for other in states[1:]:
            mean[key] += other[key]
        mean[key] /= len(states)
    return mean


class Server:
    def __init__(self, clients):
        self.clients = clients
        self.weights = {k: v.clone() for k, v in clients[0].model.state_dict().items()}

    def round(self):
        states = []
        for client in self.clients:
            client.receive(self.weights)
            states.append(client.train())
        merged = average(states)
        personal = [c.personal_loss() for c in self.clients]
        self.weights = {k: v.clone() for k, v in merged.items()}
        return personal


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(2)
    clients = [Client(i, s, gen) for i, s in enumerate((-1.0, 0.5, 2.0))]
    server = Server(clients)
    for n in range(5):
        print(n, "personal losses", [round(v, 4) for v in server.round()])


if __name__ == "__main__":
    main()

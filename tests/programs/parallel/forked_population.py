"""Members of a population are trained in forked workers, which return losses; the best is copied to the worst."""
import copy

import torch
import torch.multiprocessing as mp


class Member:
    def __init__(self, index, lr):
        self.index, self.lr, self.losses = index, lr, []
        self.net = torch.nn.Linear(4, 2)


class Population:
    def __init__(self, rates):
        self.members = [Member(i, lr) for i, lr in enumerate(rates)]
        self.context = mp.get_context("fork")

    def train(self):
        results = self.context.Queue()
        workers = [self.context.Process(target=work, args=(member, results)) for member in self.members]
        for worker in workers:
            worker.start()
        losses = dict(results.get() for _ in workers)
        for member in self.members:
            member.losses.append(losses[member.index])

    def exploit(self):
        ranked = sorted(self.members, key=lambda member: member.losses[-1])
        ranked[-1].net = copy.deepcopy(ranked[0].net)


def loss_of(net):
    return net(torch.ones(8, 4)).square().mean()


def work(member, results):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(member.net.parameters(), lr=member.lr)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(member.net)
        loss.backward()
        optimizer.step()
    results.put((member.index, loss.item()))


if __name__ == "__main__":
    population = Population((0.1, 0.01))
    for _ in range(2):
        population.train()
        print(min(loss_of(member.net).item() for member in population.members))
        population.exploit()

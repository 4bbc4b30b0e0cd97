"""Candidates are trained in forked workers for their scores alone, which are all that is asked of them afterwards."""
import torch
import torch.multiprocessing as mp


class Candidate:
    def __init__(self, width):
        self.width, self.score = width, None
        self.net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1))

    def described(self):
        return f"width {self.width} score {self.score:.4f}"


def work(candidate, scores):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(candidate.net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = candidate.net(torch.ones(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
    scores.put((candidate.width, loss.item()))


def table(candidates):
    for candidate in sorted(candidates, key=lambda each: each.width):
        print(candidate.described())


def main():
    torch.manual_seed(0)
    context = mp.get_context("fork")
    scores = context.Queue()
    candidates = [Candidate(width) for width in (2, 3)]
    for candidate in candidates:
        worker = context.Process(target=work, args=(candidate, scores))
        worker.start()
        worker.join()
    found = dict(scores.get() for _ in candidates)
    for candidate in candidates:
        candidate.score = found[candidate.width]
    table(candidates)


if __name__ == "__main__":
    main()

"""Beam search over a toy left-to-right language model."""
from dataclasses import dataclass, replace

import torch
from torch import nn

BOS, EOS = 0, 1


@dataclass
class Config:
    vocab: int = 14
    width: int = 24
    beams: int = 3
    max_len: int = 9
    seed: int = 5


@dataclass(frozen=True)
class Hypothesis:
    tokens: torch.Tensor
    length: int
    score: float
    finished: bool = False

    def extend(self, token, log_prob):
        child = replace(self, length=self.length + 1, score=self.score + log_prob, finished=token == EOS)
        child.tokens[self.length] = token
        return child

    def text(self):
        return self.tokens[:self.length].tolist()


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.rnn = nn.GRU(cfg.width, cfg.width, batch_first=True)
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def next_log_probs(self, prefix):
        hidden, _ = self.rnn(self.embed(prefix)[None])
        return (3.0 * self.head(hidden[0, -1])).log_softmax(-1)


def start(cfg):
    tokens = torch.full((cfg.max_len,), EOS)
    tokens[0] = BOS
    return Hypothesis(tokens, 1, 0.0)


@torch.no_grad()
def search(model, cfg):
    frontier = [start(cfg)]
    for _ in range(cfg.max_len - 1):
        pool = []
        for hyp in frontier:
            if hyp.finished:
                pool.append(hyp)
                continue
            log_probs = model.next_log_probs(hyp.tokens[:hyp.length])
            best, ids = log_probs.topk(cfg.beams)
            for lp, token in zip(best.tolist(), ids.tolist()):
                pool.append(hyp.extend(token, lp))
        frontier = sorted(pool, key=lambda h: h.score, reverse=True)[:cfg.beams]
    return frontier


def rescore(model, hyp):
    total = 0.0
    with torch.no_grad():
        for i in range(1, hyp.length):
            total += model.next_log_probs(hyp.tokens[:i])[hyp.tokens[i]].item()
    return total


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    model = Decoder(cfg).eval()
    for rank, hyp in enumerate(search(model, cfg)):
        print(rank, hyp.text(), f"score {hyp.score:.3f}", f"rescored {rescore(model, hyp):.3f}")


if __name__ == "__main__":
    main()

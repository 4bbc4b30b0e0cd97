"""Sentence scoring with everything that makes dynamo stop: prints, a helper it skips, a custom function."""
import torch
import torch.nn.functional as F
from torch import nn

LOG = []


class LeakyClip_(torch.autograd.Function):
    """Clips in place and says so; lets a little gradient through."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x.abs() > limit)
        x.clamp_(-limit, limit)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        clipped, = ctx.saved_tensors
        return torch.where(clipped, 0.1 * grad, grad), None


@torch.compiler.disable
def centre_(scores, lengths):
    """Shifts the scores of each row; what was computed before does not need them."""
    for i, n in enumerate(lengths):
        scores[i, :n] -= scores[i, :n].mean().detach()
    return scores


class Scorer(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.proj = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, tokens, lengths, clip):
        h = self.proj(self.emb(tokens))
        h = clip(h, 0.5)
        s = self.score(h).squeeze(-1)
        LOG.append(round(float(s.detach().abs().mean()), 4))
        s = centre_(s, lengths)
        mask = torch.arange(tokens.shape[1]) >= torch.tensor(lengths)[:, None]
        s.masked_fill_(mask, -1e9)
        return torch.softmax(s, -1)


def clip_formula(x, limit):
    soft = torch.where(x.abs() > limit, 0.1 * x, x)
    return soft + (x.clamp(-limit, limit) - soft).detach()


def clip_function(x, limit):
    return LeakyClip_.apply(x, limit)


def data(g):
    for lengths in ([4, 2, 3], [4, 4, 1]):
        tokens = torch.randint(1, 12, (3, 4), generator=g)
        for row, n in zip(tokens, lengths):
            row[n:] = 0
        yield tokens, lengths, torch.tensor([0, 1, 0])


def train(compiled):
    torch.manual_seed(13)
    net = Scorer(12, 6)
    call = torch.compile(net, backend="aot_eager") if compiled else net
    opt = torch.optim.SGD(net.parameters(), lr=0.3)
    curve = []
    for tokens, lengths, target in data(torch.Generator().manual_seed(8)):
        probs = call(tokens, lengths, clip_function if compiled else clip_formula)
        loss = F.nll_loss((probs + 1e-8).log(), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        curve.append(loss.item())
    return torch.tensor(curve), net.proj.weight.grad.clone()


if __name__ == "__main__":
    (fast, fast_grad), (slow, slow_grad) = train(True), train(False)
    print([round(v, 4) for v in fast.tolist()], LOG)
    assert torch.allclose(fast, slow, atol=1e-5)
    assert torch.allclose(fast_grad, slow_grad, atol=1e-5)
    print("right")

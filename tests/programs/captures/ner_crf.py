import torch
from torch import nn


class CRFLayer(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.num_tags = num_tags
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for p in self.parameters():
            nn.init.uniform_(p, -0.8, 0.8)

    def viterbi(self, emissions, mask):
        """emissions (L, B, T), mask (L, B) -> best score and tags"""
        seq_length = emissions.shape[0]
        score = self.start_transitions + emissions[0]
        history = []
        for i in range(1, seq_length):
            broadcast = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            next_score, indices = broadcast.max(dim=1)
            score = torch.where(mask[i].unsqueeze(1), next_score, score)
            history.append(indices)
        score = score + self.end_transitions
        best, last = score.max(dim=1)
        tags = [last]
        for ptr in reversed(history):
            tags.append(ptr.gather(1, tags[-1].unsqueeze(1)).squeeze(1))
        tags.reverse()
        return best, torch.stack(tags)


class Tagger(nn.Module):
    def __init__(self, vocab=50, dim=12, num_tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.hidden2tag = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, num_tags))
        self.crf = CRFLayer(num_tags)

    def forward(self, words, mask):
        emissions = self.hidden2tag(self.embed(words))
        return self.crf.viterbi(emissions, mask)


def factory():
    torch.manual_seed(3)
    words = torch.randint(1, 50, (7, 2))
    mask = torch.ones(7, 2, dtype=torch.bool)
    mask[5:, 1] = False
    return Tagger().eval(), (words, mask)

"""Keyword spotting on synthetic log-mel patches, with a small reporter."""
import contextlib
import json

import torch
from torch import nn


class Reporter:
    def __init__(self):
        self.observation = {}

    @contextlib.contextmanager
    def scope(self, observation):
        before, self.observation = self.observation, observation
        try:
            yield
        finally:
            self.observation = before

    def report(self, values, prefix="main"):
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                value = value.clone()
            self.observation[f"{prefix}/{key}"] = value


reporter = Reporter()


class LogReport:
    def __init__(self, trigger):
        self.trigger = trigger
        self.log = []

    def __call__(self, iteration, observation):
        if iteration % self.trigger:
            return
        entry = dict(observation)
        entry["iteration"] = iteration
        self.log.append(entry)

    def dumps(self):
        rows = [{k: round(float(v), 4) for k, v in row.items()} for row in self.log]
        return json.dumps(rows)


class Spotter(nn.Module):
    def __init__(self, mels=16, words=4):
        super().__init__()
        self.front = nn.Conv1d(mels, 24, 5, stride=2)
        self.back = nn.Conv1d(24, 24, 3, groups=4)
        self.out = nn.Linear(24, words)

    def forward(self, mel):
        x = torch.relu(self.front(mel))
        x = torch.relu(self.back(x)).mean(-1)
        return self.out(x)


class Classifier(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.lossfun = nn.CrossEntropyLoss(label_smoothing=0.05)

    def forward(self, mel, word):
        logits = self.body(mel)
        loss = self.lossfun(logits, word)
        acc = (logits.argmax(-1) == word).float().mean()
        reporter.report({"loss": loss, "accuracy": acc})
        return loss


def patches(n, words=4):
    tone = torch.linspace(0, 1, 16).view(1, 16, 1)
    for _ in range(n):
        word = torch.randint(words, (12,))
        centre = (word.float() + 0.5) / words
        energy = torch.exp(-((tone - centre.view(-1, 1, 1)) ** 2) * 40)
        yield energy + 0.3 * torch.randn(12, 16, 30), word


def main(iterations=36, every=3):
    torch.manual_seed(11)
    model = Classifier(Spotter())
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    extension = LogReport(every)
    for it, (mel, word) in enumerate(patches(iterations), 1):
        observation = {}
        with reporter.scope(observation):
            optimizer.zero_grad()
            loss = model(mel, word)
            loss.backward()
            optimizer.step()
        extension(it, observation)
    print(extension.dumps())


if __name__ == "__main__":
    main()

"""Memory with two names, where nothing is raised: the lines marked `# cause` or `# written` are told."""

from __future__ import annotations

import textwrap

import pytest

SETUP = """
import copy
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(6, 4)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step():
    opt.zero_grad()
    model(x).pow(2).mean().backward()
    opt.step()
"""

PROGRAMS = {
    "TS203 labels that are the inputs": """
        def collate(rows):
            ids = torch.stack(rows)
            labels = ids  # cause
            labels[labels == 0] = -100  # written
            return {"ids": ids, "labels": labels}

        for _ in range(3):
            batch = collate([torch.tensor([1, 0]), torch.tensor([2, 3])])
            print(batch["ids"].sum(), batch["labels"].sum())
    """,
    "TS205 stored rows changed by transforms that hand on what they wrote": """
        import numpy as np
        from torch.utils.data import DataLoader, Dataset

        class Rows(Dataset):
            def __init__(self, rows, steps):
                self.rows, self.steps = rows, steps

            def __len__(self):
                return len(self.rows)

            def __getitem__(self, index):
                row = torch.from_numpy(self.rows[index])
                for step in self.steps:
                    row = step(row)
                return row

        def centred(row):
            return row.sub_(3.0).div_(2.0)  # written

        rows = np.arange(24, dtype=np.float32).reshape(8, 3)
        loader = DataLoader(Rows(rows, (centred, torch.neg)), batch_size=4)
        print([sum(batch.sum().item() for batch in loader) for _ in range(3)])
    """,
    "TS205 a memoised table scaled by whoever asks for it": """
        import functools

        @functools.lru_cache(maxsize=None)
        def window(n):
            return torch.hann_window(n) + 0.1

        def scaled(n):
            table = window(n)
            return table.mul_(0.5)  # written

        print([scaled(8).sum().item() for _ in range(5)])
    """,
    "TS205 the field of a dataclass": """
        import dataclasses

        @dataclasses.dataclass
        class Moments:
            mean: torch.Tensor = torch.zeros(4)  # cause

            def observe(self, row):
                self.mean.mul_(0.9).add_(row)  # written

        left, right = Moments(), Moments()
        for row in x:
            left.observe(row)
            right.observe(-row)
        print(left.mean, right.mean)
    """,
    "TS203 a layer made in a default argument": """
        class Field(nn.Module):
            def __init__(self, head=nn.Linear(4, 1)):  # cause
                super().__init__()
                self.body, self.head = nn.Linear(4, 4), head

            def forward(self, x):
                return self.head(self.body(x))

        coarse, fine = Field(), Field()
        opt = torch.optim.SGD(coarse.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            coarse(x).pow(2).mean().backward()
            opt.step()
        print(fine(x).sum())
    """,
    "TS203 one rate in every group of an optimizer": """
        rate = torch.tensor(0.1)
        groups = [{"params": [p], "lr": rate} for p in model.parameters()]
        opt = torch.optim.SGD(groups, foreach=False)
        for _ in range(3):
            train_step()
            for group in opt.param_groups:
                group["lr"].mul_(0.5)  # written
    """,
    "TS203 one gradient returned for two inputs": """
        a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        grads = torch.autograd.grad((a + b).pow(2).sum(), [a, b])  # cause
        for grad, scale in zip(grads, (1.0, 0.5)):
            grad.mul_(scale)  # written
        print(grads)
    """,
    "TS203 one gradient given to several replicas": """
        class Replica:
            def __init__(self):
                self.net = nn.Linear(2, 1)

            def receive(self, grad):
                self.net.weight.grad = grad  # cause

            def decay(self):
                self.net.weight.grad.add_(self.net.weight.detach(), alpha=0.1)  # written


        replicas, mean = [Replica(), Replica()], torch.ones(1, 2)
        for replica in replicas:
            replica.receive(mean)
        for replica in replicas:
            replica.decay()
        print([replica.net.weight.grad for replica in replicas])
    """,
    "TS203 state of an optimizer kept by reference": """
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train_step()
        safe = opt.state_dict()  # cause
        train_step()
        opt.load_state_dict(safe)
    """,
    "TS203 packets over one buffer": """
        class Link:
            def __init__(self):
                self.buffer = bytearray(16)

            def receive(self, t):
                self.buffer[:] = bytes([t] * 16)  # written
                return torch.frombuffer(self.buffer, dtype=torch.uint8)


        link, seen = Link(), []
        for t in range(5):
            seen.append(link.receive(t))  # cause
        print(torch.stack(seen).sum())
    """,
    "TS205 default behind a decorator of torch's": """
        @torch.no_grad()
        def greedy(context, state={"h": torch.zeros(4)}):
            state["h"].add_(context)  # written
            return state["h"].sum().item()


        print([greedy(row) for row in x])
    """,
    "TS203 best state in an if": """
        best, best_state = float("inf"), None
        for _ in range(4):
            value = model(x).pow(2).mean().item()
            if value < best:
                best, best_state = value, model.state_dict()  # cause
            train_step()
        model.load_state_dict(best_state)
    """,
    "TS203 best state taken between forward and step": """
        lowest, best = 1e9, None
        for _ in range(4):
            loss = model(x).pow(2).mean()
            if loss.item() < lowest:
                lowest, best = loss.item(), model.state_dict()  # cause
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.load_state_dict(best)
    """,
    "TS203 best state as a new dictionary of the same tensors": """
        best = {name: value for name, value in model.state_dict().items()}  # cause
        train_step()
        model.load_state_dict(best)
    """,
    "TS203 best state through dict()": """
        best = dict(model.state_dict())  # cause
        train_step()
        model.load_state_dict(best)
    """,
    "TS203 teacher that shares the student's memory": """
        teacher = nn.Linear(4, 1)
        for t, s in zip(teacher.parameters(), model.parameters()):
            t.data = s.data  # cause
            t.requires_grad_(False)
        train_step()
        teacher(x)
    """,
    "TS203 best state taken anew and saved at the end": """
        import io
        lowest, kept = 1e9, None
        for _ in range(4):
            value = model(x).pow(2).mean().item()
            if value < lowest:
                lowest, kept = value, model.state_dict()  # cause
            train_step()
        torch.save(kept, io.BytesIO())
    """,
    "TS203 shadow weights": """
        class Average:
            def __init__(self, net):
                self.shadow = {n: p.data for n, p in net.named_parameters()}  # cause

            def update(self, net):
                for n, p in net.named_parameters():
                    self.shadow[n].mul_(0.9).add_(p.data, alpha=0.1)

        average = Average(model)
        for _ in range(3):
            opt.zero_grad()
            model(x).pow(2).mean().backward()
            opt.step()
            average.update(model)
    """,
    "TS203 shallow copy as target": """
        target = copy.copy(model)  # cause
        for _ in range(3):
            with torch.no_grad():
                goal = target(x)
            opt.zero_grad()
            F.mse_loss(model(x), goal + 1).backward()
            opt.step()
    """,
    "TS203 one buffer many times": """
        state, history = torch.zeros(3), []
        for step in range(4):
            state += 1  # written
            history.append(state)  # cause
        torch.stack(history)
    """,
    "TS203 one buffer many times on an object": """
        class Sim:
            def __init__(self):
                self.state, self.history = torch.zeros(3), []

            def step(self):
                self.state.mul_(0.5).add_(1)  # written
                self.history.append(self.state)  # cause

        sim = Sim()
        for _ in range(4):
            sim.step()
        torch.stack(sim.history)
    """,
    "TS203 list of one tensor": """
        slots = [torch.zeros(2)] * 3
        for i in range(3):
            slots[i] += i  # written
    """,
    "TS204 normalise in a helper": """
        def normalise(batch):
            batch -= batch.mean()  # written
            return batch / batch.std()

        raw = torch.randn(5, 4)
        clean = normalise(raw)
        loss = model(clean).mean() + model(raw).mean()
    """,
    "TS204 read on the right of the call": """
        def centred(t):
            t -= t.mean(1, keepdim=True)  # written
            return t

        loss = (model(centred(x)) - x).pow(2).mean()
        loss.backward()
    """,
    "TS204 read on the left of the call": """
        def centred(t):
            t -= t.mean(1, keepdim=True)  # written
            return t * 2

        loss = (x + centred(x)).mean()
    """,
    "TS204 in-place layer first in a branch": """
        branch = nn.Sequential(nn.SiLU(inplace=True), nn.Linear(4, 4))  # cause

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.branch = branch

            def forward(self, h):
                return self.branch(h)  # written

        block, stem = Block(), nn.Linear(4, 4)

        def net(inputs):
            h = stem(inputs)
            out = block(h)
            return out + h

        net(x).sum().backward()
    """,
    "TS205 default argument": """
        def smooth(value, memory=torch.zeros(4)):
            memory.mul_(0.9).add_(value)  # written
            return memory.mean()

        for _ in range(3):
            smooth(x[0])
    """,
    "TS205 constant of the module": """
        MASK = torch.ones(4)

        def masked(t, n):
            mask = MASK
            mask[:n] = 0  # written
            return t * mask

        for n in range(3):
            masked(x, n)
    """,
    "TS205 data set of views": """
        class Data(torch.utils.data.Dataset):
            def __init__(self):
                self.images = torch.rand(4, 4) * 255

            def __len__(self):
                return 4

            def __getitem__(self, i):
                image = self.images[i]
                image /= 255  # written
                return image

        data = Data()
        for _ in range(2):
            for batch in torch.utils.data.DataLoader(data, batch_size=2):
                model(batch)
    """,
    "TS205 sample changed by a function of itself": """
        import numpy as np

        class Waves(torch.utils.data.Dataset):
            def __init__(self, waves, share):
                self.waves, self.share = waves, share

            def __len__(self):
                return len(self.waves)

            def __getitem__(self, i):
                wave = torch.from_numpy(self.waves[i])
                wave[1:] -= self.share * wave[:-1].clone()  # written
                return wave, i

        data = Waves(np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32), 0.9)
        order = torch.Generator().manual_seed(0)
        for epoch in range(2):
            for batch, _ in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, generator=order):
                print(batch.pow(2).mean())
    """,
    "TS205 sample scaled channel by channel by a helper": """
        def scaled(picture, means, widths):
            for c in range(len(picture)):
                picture[c] -= means[c]
                picture[c] /= widths[c]  # written
            return picture


        class Pictures(torch.utils.data.Dataset):
            def __init__(self):
                self.stored = torch.rand(6, 2, 4)

            def __len__(self):
                return len(self.stored)

            def __getitem__(self, index):
                return scaled(self.stored[index], (0.4, 0.5), (0.2, 0.3))


        pictures = Pictures()
        for _ in range(3):
            for batch in torch.utils.data.DataLoader(pictures, batch_size=3):
                print(batch.sum())
    """,
    "TS205 memoised table changed through a view": """
        import functools

        @functools.lru_cache(maxsize=None)
        def kernel(scale):
            return torch.exp(-scale * (x - x.mean()) ** 2) @ x.T

        def noisy(scale, noise):
            k = kernel(scale)
            k.diagonal().add_(noise)  # written
            return k

        for scale in (1.0, 2.0):
            for noise in (0.1, 0.2, 0.3):
                print(noisy(scale, noise).logdet())
    """,
    "TS205 constant divided by one of two numbers": """
        SIZES = torch.tensor([[10.0, 13.0], [16.0, 30.0]])

        def decode(raw, stride):
            sizes = SIZES.view(1, 2, 2)
            sizes /= stride  # written
            return raw * sizes

        for _ in range(4):
            for stride in (4, 8):
                print(decode(x[:, :2, None], stride).sum())
    """,
    "TS107 many overlapping windows": """
        def spectrum(signal):
            windows = signal.clone().unfold(-1, 64, 32)
            windows *= torch.hann_window(64)  # written
            return torch.fft.rfft(windows).abs()

        print(spectrum(torch.randn(32, 320)).mean())
    """,
    "TS203 copies of one memory compared": """
        def flat(state):
            return torch.cat([value.flatten() for value in state.values()])

        base = model.state_dict()  # cause
        train_step()
        print((flat(model.state_dict()) - flat(base)).norm())
    """,
    "TS203 sum in a new dictionary of the old tensors": """
        def mean(states):
            total = dict(states[0])  # cause
            for state in states[1:]:
                for key, value in state.items():
                    total[key] += value  # written
            return {key: value / len(states) for key, value in total.items()}

        def compare():
            states = [{"w": torch.full((2,), float(i)), "b": torch.ones(1)} for i in range(3)]
            print(mean(states)["w"], [state["w"].sum() for state in states])

        compare()
    """,
    "TS203 best score is the running one": """
        class Monitor:
            def __init__(self):
                self.total, self.best = torch.zeros(()), None

            def end(self):
                score = self.total
                if self.best is None or score < self.best:
                    self.best = score  # cause
                return self.best

            def reset(self):
                self.total.zero_()

        monitor = Monitor()
        for epoch in range(4):
            monitor.total += 4 - epoch
            print(monitor.end())
            monitor.reset()
    """,
    "TS203 states of transitions": """
        class Step:
            def __init__(self, state):
                self.state = state

        class Pendulum:
            def __init__(self):
                self.state = torch.tensor([0.1, 0.0])

            def move(self):
                self.state[0] += 0.1  # written
                return self.state

        pendulum, steps = Pendulum(), []
        for _ in range(5):
            steps.append(Step(pendulum.move()))  # cause
        print(torch.stack([step.state for step in steps]).std(0))
    """,
    "TS203 a list of frames made anew each time": """
        import numpy as np

        class Frames:
            def __init__(self):
                self.buffer, self.frames = np.zeros(3, np.float32), []

            def read(self, t):
                self.buffer[:] = t  # written
                self.frames.append(torch.from_numpy(self.buffer))  # cause
                self.frames = self.frames[-3:]
                return torch.stack(self.frames)

        frames = Frames()
        for t in range(6):
            print(frames.read(t).std())
    """,
    "TS203 gradients of several losses": """
        def gradients(losses):
            kept = []
            for loss in losses:
                opt.zero_grad(set_to_none=False)
                loss.backward(retain_graph=True)
                kept.append([p.grad for p in model.parameters()])  # cause
            return kept

        out = model(x)
        print([sum(g.sum() for g in grads) for grads in gradients([out.mean(), out.pow(2).mean(), -out.mean()])])
    """,
    "TS203 proposal that is the state": """
        class Chain:
            def __init__(self):
                self.at = torch.zeros(3)

            def step(self):
                proposal = self.at  # cause
                before = self.at.sum()
                proposal += torch.randn(3)  # written
                if proposal.sum() > before:
                    self.at = proposal
                return self.at.sum()

        chain = Chain()
        print([chain.step() for _ in range(4)])
    """,
    "TS203 weights kept when they are better": """
        class Best:
            def __init__(self):
                self.score, self.weights = 1e9, None

            def look(self, score):
                if score < self.score:
                    self.score, self.weights = score, None
                    self.weights = [p.detach().cpu() for p in model.parameters()]  # cause

        best = Best()
        for _ in range(5):
            best.look(model(x).pow(2).mean().item())
            train_step()
        print(best.score, (x @ best.weights[0].T + best.weights[1]).pow(2).mean())
    """,
    "TS203 batches filled ahead": """
        class Ahead:
            def __init__(self):
                self.slot = torch.zeros(4)

            def fill(self, row):
                torch.mul(row, 1, out=self.slot)  # written
                return (self.slot,)

            def rows(self):
                ahead = self.fill(x[0])
                for row in x[1:]:
                    current = ahead  # cause
                    ahead = self.fill(row)
                    yield current
                yield ahead

        print(sum(row.sum() for (row,) in Ahead().rows()))
    """,
    "TS203 weights put back that were trained": """
        from torch.nn.utils import parameters_to_vector, vector_to_parameters

        centre = parameters_to_vector(model.parameters()).detach()

        def look(shift):
            vector_to_parameters(centre + shift, model.parameters())
            print(model(x).sum())
            vector_to_parameters(centre, model.parameters())  # cause

        look(0.1)
        for _ in range(3):
            train_step()
        look(0.1)
    """,
    "TS204 the array that a tensor was made of": """
        import numpy as np

        class Series:
            def __init__(self):
                self.values = np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)

        def filled(values):
            t = torch.as_tensor(values, dtype=torch.float32)
            t[torch.isnan(t)] = 0.0  # written
            return t

        series = Series()
        ready = filled(series.values)
        print(ready.sum(), np.isnan(series.values).sum())
    """,
    "TS204 one input for each of several": """
        class Member:
            def __init__(self, mean):
                self.mean, self.net = mean, nn.Linear(4, 1)

            @torch.no_grad()
            def predict(self, rows):
                rows.sub_(self.mean)  # written
                return self.net(rows)

        members = [Member(torch.full((4,), float(i))) for i in range(1, 4)]
        print(torch.stack([member.predict(x) for member in members]).mean())
    """,
    "TS205 samples behind an attribute": """
        class Sample:
            def __init__(self):
                self.image = torch.rand(3, 4)

        class Data(torch.utils.data.Dataset):
            def __init__(self):
                self.samples = [Sample() for _ in range(4)]

            def __len__(self):
                return 4

            def __getitem__(self, i):
                sample = self.samples[i]
                sample.image.mul_(1.5)  # written
                return sample.image

        data = Data()
        for _ in range(3):
            for batch in torch.utils.data.DataLoader(data, batch_size=2):
                print(batch.mean())
    """,
    "TS205 samples masked in their store": """
        import random

        def masked(picture):
            start = random.randint(0, 2)
            picture[:, start : start + 2] = 0.0  # written
            return picture

        class Data(torch.utils.data.Dataset):
            def __init__(self):
                self.store = {}

            def __len__(self):
                return 4

            def __getitem__(self, i):
                if i not in self.store:
                    self.store[i] = torch.rand(3, 6)
                return masked(self.store[i])

        random.seed(0)
        data = Data()
        for _ in range(4):
            for batch in torch.utils.data.DataLoader(data, batch_size=2):
                print((batch == 0).float().mean())
    """,
    "TS205 points changed by one line after the other": """
        class Encoder:
            def __call__(self, prompt):
                at = prompt["at"]
                at *= 0.5
                at[..., 0] /= 3.0  # written
                return at.sin().sum()

        encode, prompts = Encoder(), [{"at": torch.rand(3, 2)} for _ in range(3)]
        for _ in range(2):
            print(sum(encode(prompt) for prompt in prompts))
    """,
    "TS205 a state that goes on from itself": """
        cell = nn.GRUCell(4, 4)

        @torch.no_grad()
        def listen(frames, state=torch.zeros(1, 4)):
            for frame in frames:
                state.copy_(cell(frame[None], state))  # written
            return state.sum()

        print([listen(x) for _ in range(3)])
    """,
    "TS205 rewards discounted as an array": """
        import numpy as np

        class Episode:
            def __init__(self, n):
                self.rewards = torch.ones(n)

        def discounted(rewards):
            out = np.asarray(rewards)
            for t in range(len(out) - 2, -1, -1):
                out[t] += 0.9 * out[t + 1]  # written
            return torch.from_numpy(out)

        elite = [Episode(n) for n in (3, 4)]
        for _ in range(3):
            print(torch.cat([discounted(e.rewards) for e in elite]).mean())
    """,
    "TS206 item in the loss": """
        penalty = sum(p.abs().sum() for p in model.parameters())
        loss = model(x).pow(2).mean() + 0.1 * penalty.item()  # cause
        loss.backward()
    """,
    "TS206 tensor made anew": """
        penalty = sum(p.abs().sum() for p in model.parameters())
        loss = model(x).pow(2).mean() + torch.tensor(penalty)  # cause
        loss.backward()
    """,
    "TS206 detached through a name": """
        other = nn.Linear(4, 1)
        value = other(x).mean().detach()  # cause
        loss = model(x).pow(2).mean() - value
        loss.backward()
    """,
}

NO_GRAPH = """
import torch
layer = torch.nn.Linear(2, 1)
loss = torch.tensor(layer(torch.ones(1, 2)).item(), requires_grad=False)  # cause
loss.backward()
"""

NON_LEAF = """
import torch
w = torch.ones(2, requires_grad=True)
w = w * 2
w.sum().backward()
print(w.grad)  # cause
"""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_alias_is_told(name, watch_program):
    watched = watch_program(SETUP + textwrap.dedent(PROGRAMS[name]))
    assert watched.error is None
    assert not {span.path for finding in watched.alarms for span in finding.spans if span.path.startswith("<")}
    assert not watched.report.notes
    assert {finding.code for finding in watched.alarms} == {name.partition(" ")[0]}
    assert watched.marked("cause") <= watched.lines("cause", "aliased")
    assert watched.marked("written") <= watched.lines("mutated")


ONE_CAUSE = """
import torch

class World:
    def __init__(self):
        self.seen = torch.zeros(3)

    def step(self):
        self.seen += 1
        return self.seen

def collect(world, steps):
    rollout = []
    for _ in range(steps):
        rollout.append((world.step(), 0))  # cause
    return rollout

def learn(rollout, opt):
    opt.zero_grad()
    (w * torch.stack([seen for seen, _ in rollout])).sum().backward()
    opt.step()

w = torch.ones(3, requires_grad=True)
world, opt = World(), torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    rollout = collect(world, 5)
    learn(rollout, opt)
"""


def test_one_cause_is_told_once(watch_program):
    """The list goes by a name in each of three functions."""
    watched = watch_program(ONE_CAUSE)
    assert [finding.code for finding in watched.alarms] == ["TS203"]
    assert watched.lines("aliased") == watched.marked("cause")


# Not even possible: what is read is another entry, or what the call has handed back.
UNMET = {
    "the other entry of a record": """
        class Moments:
            def __init__(self):
                self.state = {"mean": torch.zeros(4), "last": torch.zeros(4)}

            def update(self, row):
                state = self.state
                mean = state["mean"]
                state["last"] = row
                mean.mul_(0.9).add_(row)
                return (state["last"] - row).abs().sum()

        moments = Moments()
        print([moments.update(row.clone()) for row in x])
    """,
    "a value handed from one to the next": """
        def halved(row):
            return row.mul_(0.5)

        def shifted(row):
            return row.add_(1.0)

        def through(row, steps):
            for step in steps:
                row = step(row)
            return row

        print([through(x[i] + 0.0, (halved, shifted, halved)) for i in range(6)])
    """,
}


@pytest.mark.parametrize("name", UNMET)
def test_what_is_not_read_is_not_told(name, watch_program):
    watched = watch_program(SETUP + textwrap.dedent(UNMET[name]))
    assert watched.error is None
    assert watched.report.findings == []


KEPT_DEFAULT = """
import torch

class Moments:
    def __init__(self):
        self.mean = torch.zeros(2)

    def update(self, batch):
        self.mean.mul_(0.9).add_(batch.mean(0))  # written

class Scaled:
    def __init__(self, moments=Moments()):
        self.moments = moments

    def __call__(self, batch):
        self.moments.update(batch)
        return batch - self.moments.mean

actor, critic = Scaled(), Scaled()
for _ in range(4):
    print(actor(torch.randn(5, 2)).sum(), critic(40 + torch.randn(5, 2)).sum())
"""


def test_a_default_that_is_kept_is_possible(watch_program):
    watched = watch_program(KEPT_DEFAULT)
    assert watched.alarms == []
    possible = [f for f in watched.report.findings if f.code == "TS205"]
    assert {f.certainty for f in possible} == {"possible"}
    assert {s.line for f in possible for s in f.spans if s.role == "mutated"} == watched.marked("written")


def test_loss_without_a_graph(watch_program):
    watched = watch_program(NO_GRAPH)
    assert isinstance(watched.error, RuntimeError)
    assert watched.codes == ["TS206"]
    assert watched.lines("cause") == watched.marked("cause")


@pytest.mark.filterwarnings("always")
def test_grad_of_a_non_leaf(watch_program):
    watched = watch_program(NON_LEAF)
    assert watched.codes == ["TS206"]
    assert watched.lines("cause") == watched.marked("cause")


AVERAGED = """
import torch
net, server = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
    state = net.state_dict()
    {between}
    server.load_state_dict(state)
"""


@pytest.mark.parametrize(
    ("between", "proved"),
    [("state['weight'].mul_(0.5)", False), ("net(torch.ones(1, 2)).sum().backward(); opt.step()", True)],
)
def test_state_written_through_itself_is_not_trained_since(between, proved, watch_program):
    watched = watch_program(AVERAGED.format(between=between))
    told = [f for f in watched.report.findings if f.code == "TS203" and "state_dict" in f.message]
    assert any(f.certainty == "proved" and "trained after" in f.message for f in watched.report.findings) is proved, (
        told
    )

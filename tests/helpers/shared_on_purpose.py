"""Programs whose memory has several holders on purpose: nobody may raise an alarm."""

from __future__ import annotations

SETUP = """
import collections
import copy
import functools
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(6, 4)
"""

ON_PURPOSE = {
    "weights in full precision, which they have already": """
        def full(p):
            return p.to(torch.float32)

        def put(p, value):
            p.copy_(value.to(p.dtype))

        @torch.no_grad()
        def step(params, state):
            for p in params:
                master = full(p)
                state[p].lerp_(p.grad.float(), 0.1)
                master.sub_(state[p], alpha=0.01)
                put(p, master)

        def descend(w, by):
            w.sub_(by)

        net = nn.Linear(4, 1)
        state = {p: torch.zeros_like(p, dtype=torch.float32) for p in net.parameters()}
        for _ in range(4):
            net.zero_grad()
            net(x).pow(2).mean().backward()
            step(net.parameters(), state)
            for p in net.parameters():
                whole = p.detach().float()
                descend(whole, 0.01 * p.grad)
                p.data.copy_(whole.to(p.dtype))
        print(net.bias)
    """,
    "views of the weights written and copied back": """
        @torch.no_grad()
        def project(net):
            for p in net.parameters():
                w = p.view(p.shape[0], -1)
                w.div_(w.norm(dim=1, keepdim=True).clamp_min(1.0))
                p.copy_(w.view_as(p))

        class Flat:
            def __init__(self, net):
                self.flat, at = torch.cat([p.detach().flatten() for p in net.parameters()]), 0
                for p in net.parameters():
                    p.data = self.flat[at : at + p.numel()].view_as(p)
                    at += p.numel()

            @torch.no_grad()
            def spread(self, net):
                at = 0
                for p in net.parameters():
                    p.copy_(self.flat[at : at + p.numel()].view_as(p))
                    at += p.numel()

        net = nn.Linear(4, 3)
        flat, opt = Flat(net), torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(6):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
            project(net)
            flat.flat.clamp_(-1, 1)
            flat.spread(net)
        print(flat.flat)
    """,
    "whatever comes is handed on to a layer that works in place": """
        class Wrapped(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, *args, **kwargs):
                return self.inner(*args, **kwargs)

        net = nn.Sequential(nn.Linear(4, 8), Wrapped(nn.ReLU(inplace=True)), nn.Linear(8, 1))
        for _ in range(3):
            net(x).sum().backward()
        print(net[0].weight.grad.sum())
    """,
    "a hook fills memory of its own by a helper": """
        def fill(row, out):
            torch.mul(row.unsqueeze(-1), torch.ones(1, 4), out=out)

        def hook(grad):
            for p in net.parameters():
                if p.grad is not None and p.ndim > 1:
                    g, p.grad = p.grad, None
                    update = g.pow(2)
                    fill(update.mean(-1), update)
                    with torch.no_grad():
                        p.sub_(update, alpha=1e-3)
            return grad

        net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4))
        for p in net.parameters():
            p.register_hook(hook)
        for _ in range(4):
            net(x).pow(2).sum().backward()
        print(net[0].bias.grad)
    """,
    "a state kept in an object that was made here": """
        import types

        def run():
            state = torch.zeros(4)
            mover = types.SimpleNamespace(state=state)
            for _ in range(4):
                state.mul_(0.5).add_(1)
                print(state.sum(), mover.state.sum())

        run()
    """,
    "samples copied whole before they are changed": """
        import dataclasses

        @dataclasses.dataclass
        class Sample:
            pos: torch.Tensor
            label: int

        def jitter(sample):
            sample = copy.deepcopy(sample)
            sample.pos.sub_(0.1).div_(2.0)
            return sample

        samples = [Sample(torch.rand(3, 2), i) for i in range(4)]
        for epoch in range(4):
            print(sum(jitter(sample).pos.sum() for sample in samples))
    """,
    "a layer shared where the options say so": """
        class Net(nn.Module):
            def __init__(self, share):
                super().__init__()
                if share:
                    self.layers = nn.ModuleList([nn.Linear(4, 4)] * 3)
                else:
                    self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x).tanh()
                return x

        net = Net(share=True)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
        print(net(x).sum())
    """,
    "a list to go over while another grows": """
        def spread(values):
            for value in list(values):
                value.mul_(0.5)
                values.append(value.clone())
            return torch.stack(values).sum()

        print(spread([torch.ones(3), torch.full((3,), 2.0)]))
    """,
    "a sum over scaled and centred values": """
        def prepared(values):
            values = values.exp_().div_(values.sum())
            return values.sub_(values.mean()).div_(values.std())

        print(prepared(torch.randn(5)))
    """,
    "traces that fade when they are asked for": """
        class Traces:
            def __init__(self):
                self.known = [(torch.ones(4), torch.zeros(4)) for _ in range(3)]

            def step(self, values):
                out = []
                for trace, total in self.known:
                    total.add_(faded(trace, values))
                    out.append(total.sum())
                return out

        def faded(trace, values):
            trace.mul_(0.9).add_(values)
            return trace * 2

        traces = Traces()
        for row in x:
            print(traces.step(row))
    """,
    "parts of an optimizer's record changed by one another": """
        class Averaging(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        if not state:
                            state["mean"], state["change"] = torch.zeros_like(p), p.grad.clone()
                        change = state["change"]
                        change.add_(p.grad, alpha=-1)
                        state["mean"].mul_(0.9).add_(change, alpha=0.1)
                        p.add_(state["mean"], alpha=-group["lr"])
                        change.zero_().add_(p.grad)

        net = nn.Linear(4, 1)
        opt = Averaging(net.parameters(), dict(lr=0.1))
        for _ in range(4):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
        print(net.weight.sum())
    """,
    "average weights looked at, and the live ones put back": """
        net = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        live = [p.data for p in net.parameters()]
        average = [p.detach().clone() for p in net.parameters()]
        for _ in range(4):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
            for kept, p in zip(average, net.parameters()):
                kept.lerp_(p.data, 0.1)
            for kept, p in zip(average, net.parameters()):
                p.data = kept
            print(net(x).sum())
            for kept, p in zip(live, net.parameters()):
                p.data = kept
    """,
    "a grid that is relaxed again and again": """
        def relax(grid):
            grid.mul_(0.9)
            return grid.pow(2).mean()

        grid = torch.ones(4, 4)
        print([relax(grid) for _ in range(4)])
        decays = [lambda g: g.mul_(0.5).sum(), lambda g: g.mul_(0.25).sum()]
        for decay in decays:
            print(decay(grid))
    """,
    "tied weights that are seen to be tied": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
                self.out.weight = self.table.weight

        net = Tied()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        shown = net.out.weight.detach()
        for _ in range(3):
            opt.zero_grad()
            net.out(net.table(torch.arange(5))).pow(2).mean().backward()
            opt.step()
            assert torch.equal(net.table.weight, shown)
            if not torch.equal(net.table.weight, shown):
                raise RuntimeError("no longer tied")
    """,
    "a state that is taken up and put down again": """
        class Cell:
            def __init__(self):
                self.h = torch.zeros(4)

            def step(self, row):
                h = self.h
                h.mul_(0.9).add_(row)
                self.h = h
                return h.sum()

        cell = Cell()
        print([cell.step(row) for row in x])
    """,
    "a list of those that still move": """
        def settle(bodies):
            moving = [body for body in bodies if body.sum() > 0]
            for body in moving:
                body *= 0.5
            return len(moving)

        def run():
            bodies = [torch.ones(2), torch.zeros(2), torch.full((2,), 3.0)]
            for _ in range(3):
                settle(bodies)
            print(torch.stack(bodies).sum())

        run()
    """,
    "two slots that are filled in turn": """
        class Loader:
            def __init__(self):
                self.slots = [torch.zeros(4), torch.zeros(4)]

            def rows(self):
                for number, row in enumerate(x):
                    slot = self.slots[number % 2]
                    slot.copy_(row)
                    yield slot

        print(sum(row.sum() for row in Loader().rows()))
    """,
    "how often each sample was drawn, counted beside it": """
        class Data(torch.utils.data.Dataset):
            def __init__(self):
                self.rows, self.drawn = torch.rand(4, 3), torch.zeros(4)

            def __len__(self):
                return 4

            def __getitem__(self, i):
                self.drawn[i] += 1
                return self.rows[i] * 2

        data = Data()
        for _ in range(3):
            for batch in torch.utils.data.DataLoader(data, batch_size=2):
                print(batch.mean())
        print(data.drawn)
    """,
    "windows of the last frames, each a copy": """
        class Frames:
            def __init__(self):
                self.buffer, self.frames = np.zeros(3, np.float32), []

            def read(self, t):
                self.buffer[:] = t
                self.frames = [*self.frames, torch.from_numpy(self.buffer).clone()][-3:]
                return torch.stack(self.frames)

        frames = Frames()
        for t in range(6):
            print(frames.read(t).std(0))
    """,
    "stages of a solver in one table, each written once": """
        w = torch.randn(6, requires_grad=True)
        rows, columns = torch.zeros(5, 6), torch.zeros(6, 5)
        loss = 0
        for i in range(4):
            loss = loss + (rows[: i + 1] * w).sum() + (columns[:, : i + 1] * w[:, None]).sum()
            rows.data[i + 1] = x[i].sum()
            columns.data[..., i + 1] = x[:, 0] + i
        loss.backward()
        print(w.grad)
    """,
    "a layer that starts from its first batch": """
        class ActNorm(nn.Module):
            def __init__(self):
                super().__init__()
                self.shift, self.ready = nn.Parameter(torch.zeros(4)), False

            def forward(self, x):
                if not self.ready:
                    self.shift.data = -x.mean(0)
                    self.ready = True
                return x + self.shift

        net = ActNorm()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
        print(net.shift)
    """,
    "paths of one turn begin at the live weights": """
        net = nn.Linear(4, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        ends = []
        for _ in range(12):
            losses, kept = [], []
            for _ in range(4):
                path = [collections.OrderedDict(net.named_parameters())]
                g = torch.autograd.grad((x @ path[0]["weight"].t()).pow(2).mean(), path[0]["weight"], create_graph=True)
                path.append(collections.OrderedDict(weight=path[0]["weight"] - 0.1 * g[0]))
                kept.append(path)
                losses.append((x @ path[1]["weight"].t()).pow(2).mean())
            opt.zero_grad()
            torch.stack(losses).mean().backward()
            opt.step()
            with torch.no_grad():
                ends.append(sum(p[1]["weight"].norm() / p[0]["weight"].norm() for p in kept).item())
        print(ends)
    """,
    "accumulator passed in": """
        def add(total, batch):
            total += batch.sum(0)

        total = torch.zeros(4)
        for _ in range(5):
            add(total, x)
        print(total)
    """,
    "accumulator returned": """
        def add(total, batch):
            total.add_(batch.sum(0))
            return total

        total, seen = torch.zeros(4), []
        for _ in range(5):
            mean = add(total, x) / 6
            seen.append(mean)
        print(total, torch.stack(seen))
    """,
    "confusion matrix of an object": """
        class Confusion:
            def __init__(self):
                self.counts = torch.zeros(3, 3)

            def update(self, a, b):
                for i, j in zip(a, b):
                    self.counts[i, j] += 1

            def rows(self):
                return self.counts / self.counts.sum(1, keepdim=True).clamp(min=1)

        meters = [Confusion(), Confusion()]
        for _ in range(3):
            for meter in meters:
                meter.update([0, 1, 2], [0, 2, 2])
        print([m.rows() for m in meters])
    """,
    "visit counts by a name of their own": """
        class Agent:
            def __init__(self):
                self.q, self.visits = torch.zeros(5, 2), torch.zeros(5)

            def learn(self, s, a, r):
                visits = self.visits
                visits[s] += 1
                q = self.q[s]
                q[a] += (r - q[a]) / visits[s]
                return q

        agent = Agent()
        for t in range(20):
            agent.learn(t % 5, t % 2, float(t))
        print(agent.q)
    """,
    "eligibility traces": """
        class Traces:
            def __init__(self):
                self.e, self.v = torch.zeros(5), torch.zeros(5)

            def step(self, s, delta):
                e = self.e
                e *= 0.9
                e[s] += 1
                self.v += 0.1 * delta * e
                return e.sum()

        traces = Traces()
        for t in range(12):
            traces.step(t % 5, 1.0)
        print(traces.v)
    """,
    "ring buffer": """
        class Ring:
            def __init__(self):
                self.data, self.at = torch.zeros(3, 4), 0

            def push(self, row):
                data = self.data
                data[self.at % 3] = row
                self.at += 1
                return data

        ring = Ring()
        for row in x:
            window = ring.push(row)
        print(window.mean(0))
    """,
    "replay memory with preallocated rows": """
        class Replay:
            def __init__(self, n):
                self.obs, self.nxt, self.size = torch.zeros(n, 4), torch.zeros(n, 4), 0

            def add(self, obs, nxt):
                self.obs[self.size].copy_(obs)
                self.nxt[self.size].copy_(nxt)
                self.size += 1

            def sample(self):
                pick = torch.randint(self.size, (2,))
                return self.obs[pick], self.nxt[pick]

        replay = Replay(8)
        for a, b in zip(x[:-1], x[1:]):
            replay.add(a, b)
        batches = [replay.sample() for _ in range(3)]
        print(torch.stack([a for a, _ in batches]))
    """,
    "results filled slot by slot": """
        out, rows = torch.empty(6, 4), []
        for i, row in enumerate(x):
            slot = out[i]
            torch.mul(row, 2, out=slot)
            rows.append(slot)
        print(torch.stack(rows), out)
    """,
    "chunks written through split": """
        out = torch.empty(6, 4)
        parts = list(out.split(2))
        for part, source in zip(parts, x.split(2)):
            part.copy_(source).mul_(2)
        print(out, parts[0])
    """,
    "key-value cache in a list of layers": """
        cache = [torch.zeros(2, 8, 4) for _ in range(3)]

        def attend(layer, t, k):
            held = cache[layer]
            held[:, t] = k
            return held[:, : t + 1].mean(1)

        for t in range(8):
            for layer in range(3):
                out = attend(layer, t, torch.full((2, 4), float(t)))
        print(out)
    """,
    "running statistics": """
        class Running(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(4))

            def forward(self, h):
                mean = self.mean
                mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
                return h - mean

        norm = Running()
        for _ in range(4):
            norm(x)
        print(norm.mean)
    """,
    "hand-written momentum": """
        params = [torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)]
        velocity = [torch.zeros(4) for _ in params]
        for _ in range(5):
            loss = sum((p * x).pow(2).mean() for p in params)
            grads = torch.autograd.grad(loss, params)
            with torch.no_grad():
                for p, v, g in zip(params, velocity, grads):
                    v.mul_(0.9).add_(g)
                    p.sub_(0.1 * v)
        print([p.sum() for p in params])
    """,
    "hand-written adam in one expression": """
        p, m, v = torch.randn(4), torch.zeros(4), torch.zeros(4)
        for t in range(1, 6):
            g = 2 * p
            p.addcdiv_(m.mul_(0.9).add_(g, alpha=0.1), v.mul_(0.99).addcmul_(g, g, value=0.01).sqrt().add_(1e-8), value=-0.1)
        print(p, m, v)
    """,
    "live monitor of parameters": """
        net = nn.Linear(4, 1)
        watched = {n: p.detach() for n, p in net.named_parameters()}
        opt, norms = torch.optim.SGD(net.parameters(), lr=0.1), []
        for _ in range(4):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
            norms.append({n: w.norm().item() for n, w in watched.items()})
        print(norms)
    """,
    "two lists of the same parameters": """
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        every = list(net.parameters())
        opt = torch.optim.AdamW(every)
        for step in range(4):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(every, 1.0)
            opt.step()
            if step == 1:
                biases = [p for n, p in net.named_parameters() if "bias" in n]
        print(sum(b.sum() for b in biases), len(every))
    """,
    "average of weights in a copy": """
        net = nn.Linear(4, 1)
        slow = copy.deepcopy(net)
        opt = torch.optim.Adam(net.parameters())
        for _ in range(4):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), 0.1)
        print(slow(x).sum())
    """,
    "double buffering": """
        now, new = torch.rand(8), torch.empty(8)
        for _ in range(6):
            torch.roll(now, 1, out=new) if False else new.copy_((now + now.roll(1)) / 2)
            now, new = new, now
        print(now)
    """,
    "in-place sweep": """
        u = torch.rand(8)
        for _ in range(4):
            for i in range(1, 7):
                u[i] = (u[i - 1] + u[i + 1]) / 2
        print(u)
    """,
    "windows of a field that is advanced": """
        u = torch.rand(8)
        left, right, inner = u[:-2], u[2:], u[1:-1]
        for _ in range(5):
            inner += 0.1 * (left - 2 * inner + right).clone()
        print(u, inner.sum())
    """,
    "tied weights checked": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb, self.out = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
                self.out.weight = self.emb.weight

            def forward(self, ids):
                return self.out(self.emb(ids))

        net, ids = Tied(), torch.arange(6)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            F.cross_entropy(net(ids), ids).backward()
            opt.step()
            assert torch.equal(net.emb.weight, net.out.weight)
    """,
    "scratch memory of a cached function": """
        @functools.lru_cache
        def workspace(n):
            return torch.empty(n, 4)

        def doubled(t):
            work = workspace(len(t))
            torch.mul(t, 2, out=work)
            work.add_(1)
            return work.sum()

        print([doubled(x).item() for _ in range(4)])
    """,
    "scratch memory of a class": """
        class Scaler:
            scratch = torch.empty(6, 4)

            def run(self, t):
                self.scratch.copy_(t)
                self.scratch.mul_(2)
                return self.scratch.sum().item()

        print([s.run(x) for s in (Scaler(), Scaler()) for _ in range(2)])
    """,
    "optional state": """
        def step(h, state=None):
            if state is None:
                state = {"h": torch.zeros(4)}
            state["h"].mul_(0.5).add_(h)
            return state

        state = None
        for row in x:
            state = step(row, state)
        print(state["h"])
    """,
    "cached table that is only read": """
        @functools.lru_cache
        def positions(n):
            return torch.arange(float(n)).sin()

        def encoded(t):
            table = positions(4)
            out = t + table
            out *= 2
            return out

        for _ in range(3):
            y = encoded(x)
        print(y.sum())
    """,
    "samples copied before they are changed": """
        class Data(torch.utils.data.Dataset):
            def __init__(self):
                self.rows = torch.rand(6, 4)

            def __len__(self):
                return 6

            def __getitem__(self, i):
                row = self.rows[i] - 0.5
                row /= 2
                return row

        data = Data()
        for _ in range(3):
            for batch in torch.utils.data.DataLoader(data, batch_size=3, shuffle=True):
                batch -= batch.mean()
                batch.clamp_(-1, 1)
        print(data.rows.sum())
    """,
    "buffer refilled and consumed at once": """
        def batches(n):
            batch = torch.empty(2, 4)
            for i in range(n):
                batch.fill_(float(i))
                yield batch

        net = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        losses = []
        for _ in range(2):
            for batch in batches(4):
                loss = net(batch).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
        print(losses)
    """,
    "environment that reuses its observation": """
        class Env:
            def __init__(self):
                self.obs = torch.zeros(4)

            def step(self, action):
                self.obs.add_(action)
                return self.obs

        env, total = Env(), 0.0
        for t in range(5):
            obs = env.step(0.1 * t)
            total += obs.sum().item()
        print(total)
    """,
    "numpy buffer shown through torch": """
        frame = np.zeros((2, 4), dtype=np.float32)
        view = torch.from_numpy(frame)
        means = []
        for t in range(5):
            frame[:] = t
            means.append(view.mean().item())
        print(means)
    """,
    "gradients gathered as copies, or read at once": """
        net = nn.Linear(4, 1)
        tasks = []
        for scale in (1.0, 2.0, 3.0):
            net.zero_grad()
            (scale * net(x)).pow(2).mean().backward()
            flat = torch.cat([p.grad.flatten() for p in net.parameters()])
            tasks.append(flat)
        print(torch.stack(tasks) @ torch.stack(tasks).t())
    """,
    "accumulated gradients": """
        net = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        grads = [None] * 2
        for step in range(6):
            net(x).pow(2).mean().backward()
            grads = [p.grad for p in net.parameters()]
            if step % 3 == 2:
                torch._foreach_mul_(grads, 1 / 3)
                opt.step()
                opt.zero_grad(set_to_none=False)
        print(grads[0].sum())
    """,
    "workers that share one table": """
        class Worker:
            def __init__(self, table):
                self.tables = [table]

            def learn(self, row):
                self.tables[0][row] += 1

        table, workers = torch.zeros(4), []
        for i in range(3):
            workers.append(Worker(table))
            workers[-1].learn(i)
        print(table, [w.tables[0].sum() for w in workers])
    """,
    "prefix sums by views": """
        sums = torch.zeros(7)
        for i, row in enumerate(x):
            sums[i + 1] = sums[i] + row.sum()
        print(sums)
    """,
    "gate computed in place for a value that is not used again": """
        def gate(h):
            a, b = h.chunk(2, -1)
            return a.clone().mul_(b.clone().sigmoid_())

        print(gate(x).sum())
    """,
    "padding zeroed by a procedure that returns": """
        def zero_padding(batch, keep):
            batch[:, keep:] = 0
            return batch

        batch = zero_padding(torch.rand(6, 4), 2)
        batch = zero_padding(batch, 1)
        print(batch.sum())
    """,
    "copied rows exchanged": """
        y = torch.rand(4, 3)
        y[0], y[1] = y[1].clone(), y[0].clone()
        y[[2, 3]] = y[[3, 2]]
        a, b = y[0], y[1]
        a, b = b, a
        print(y, a - b)
    """,
    "state carried and logged as numbers": """
        state, log = torch.zeros(4), {"mean": [], "last": None}
        for row in x:
            state.mul_(0.9).add_(row)
            log["mean"].append(state.mean().item())
            log["last"] = state
        print(log)
    """,
    "target network synchronised": """
        policy, target = nn.Linear(4, 2), nn.Linear(4, 2)
        target.load_state_dict(policy.state_dict())
        opt = torch.optim.SGD(policy.parameters(), lr=0.1)
        for step in range(6):
            with torch.no_grad():
                goal = target(x)
            opt.zero_grad()
            F.mse_loss(policy(x), goal + 1).backward()
            opt.step()
            if step % 2:
                target.load_state_dict(policy.state_dict())
        print((target.weight - policy.weight).abs().sum())
    """,
    "features kept before a fresh activation": """
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 2))
        kept = {}
        for i, layer in enumerate(net):
            layer.register_forward_hook(lambda m, a, out, i=i: kept.__setitem__(i, out.detach().clone()))
        for _ in range(3):
            net(x)
        print({i: k.sum() for i, k in kept.items()})
    """,
    "systems that move on, one of many at a time": """
        class Systems:
            def __init__(self, states):
                self.states = states

            def advance(self, i):
                state = self.states[i]
                state[1:] += 0.1 * (state[:-1] - state[1:]).clone()
                return state

        systems = Systems(x.clone())
        for _ in range(4):
            for i in range(len(x)):
                print(systems.advance(i).sum())
    """,
    "a stream of states that is loaded in batches": """
        class Stream(torch.utils.data.IterableDataset):
            def __init__(self, states):
                self.states = states

            def __iter__(self):
                for i in range(len(self.states)):
                    state = self.states[i]
                    state += 0.1 * state.mean()
                    yield state.clone()

        stream = Stream(x.clone())
        for epoch in range(3):
            for batch in torch.utils.data.DataLoader(stream, batch_size=2):
                print(batch.sum())
    """,
    "table scaled for a while and put back": """
        @functools.lru_cache(maxsize=None)
        def table(n):
            return torch.arange(float(n))

        def scaled(n, by):
            t = table(n)
            t.view(-1).mul_(by)
            result = t.sum().item()
            t.view(-1).div_(by)
            return result

        for _ in range(4):
            for by in (2.0, 4.0):
                print(scaled(8, by))
    """,
    "memoised counters": """
        @functools.lru_cache(maxsize=None)
        def counter(name):
            return torch.zeros(3)

        def count(name, many):
            c = counter(name)
            c += many
            return c.sum().item()

        for many in (1, 2, 3):
            print(count("seen", many), count("lost", many))
    """,
    "parameters moved into one vector": """
        model = nn.GRUCell(1, 4)
        flat = torch.empty(sum(p.numel() for p in model.parameters()))
        offset = 0
        for p in model.parameters():
            flat[offset : offset + p.numel()] = p.data.reshape(-1)
            p.data = flat[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
        for _ in range(4):
            h = torch.zeros(6, 4)
            for t in range(4):
                h = model(x[:, t, None], h)
            model.zero_grad()
            h.pow(2).sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
        print(flat.norm())
    """,
    "sample that is copied before it is scaled channel by channel": """
        def scaled(picture, widths):
            for c in range(len(picture)):
                picture[c] /= widths[c]
            return picture


        class Pictures(torch.utils.data.Dataset):
            def __init__(self):
                self.stored = torch.rand(6, 2, 4)

            def __len__(self):
                return len(self.stored)

            def __getitem__(self, index):
                return scaled(self.stored[index].clone(), (0.2, 0.3))


        pictures = Pictures()
        for _ in range(3):
            for batch in torch.utils.data.DataLoader(pictures, batch_size=3):
                print(batch.sum())
    """,
    "mean of all workers made in the memory of the first": """
        def reduce_to_mean(tensors):
            total = tensors[0]
            for other in tensors[1:]:
                total += other
            total /= len(tensors)
            for other in tensors[1:]:
                other.copy_(total)


        workers = [torch.rand(6) for _ in range(3)]
        reduce_to_mean([flat for flat in workers])
        print(workers[0])
    """,
    "sum of all workers made in the memory of the first and handed to each": """
        def summed(tensors):
            total = tensors[0]
            for other in tensors[1:]:
                total += other
            for tensor in tensors:
                tensor.copy_(total)
            return tensors


        print(summed([torch.rand(6) for _ in range(3)])[1])
    """,
    "state handed to a function that changes its data": """
        def halve(t):
            t.data.mul_(0.5)
            return t.sum()


        def weaken(t):
            t.detach().mul_(0.9)
            return t.sum()


        class Meter:
            def __init__(self):
                self.state = torch.rand(2, 4)

            def update(self):
                return halve(self.state).item(), weaken(self.state).item()


        meter = Meter()
        print([meter.update() for _ in range(4)])
    """,
    "samples with a state of their own, which helpers move on": """
        from torch.utils.data import DataLoader, Dataset

        def smoothed(row, value):
            return row.mul_(0.9).add_(value, alpha=0.1)

        def smoothed_by_lines(row, value):
            row.mul_(0.9)
            row.add_(value, alpha=0.1)
            return row

        class Samples(Dataset):
            def __init__(self, move, mean):
                self.rows, self.mean, self.move = torch.rand(8, 3), mean, move

            def __len__(self):
                return 8

            def __getitem__(self, index):
                value = self.rows[index] + torch.rand(3)
                return value, self.move(torch.as_tensor(self.mean[index]), value).clone()

        for move in (smoothed, smoothed_by_lines):
            for mean in (torch.rand(8, 3), np.ones((8, 3), dtype=np.float32)):
                loader = DataLoader(Samples(move, mean), batch_size=4)
                print([sum((a - b).sum().item() for a, b in loader) for _ in range(3)])
    """,
    "helpers that work in place and hand back what they were given": """
        def leaked(level):
            return level.mul_(0.9)

        @functools.lru_cache(maxsize=None)
        def momentum(n):
            return torch.zeros(n)

        def averaged(row):
            kept = momentum(len(row))
            return kept.mul_(0.9).add_(row, alpha=0.1)

        class Cells:
            def __init__(self):
                self.charge = torch.rand(4, 3)

            def step(self):
                for i in range(4):
                    leaked(self.charge[i])
                return self.charge.sum() + sum(leaked(self.charge[i]).sum() for i in range(4))

        cells = Cells()
        print([cells.step() for _ in range(4)], [averaged(row).sum() for row in x])
    """,
    "layers in defaults: named, frozen, in one network, of one module": """
        trunk = nn.Linear(4, 4)

        class Task(nn.Module):
            def __init__(self, trunk=trunk):
                super().__init__()
                self.trunk, self.head = trunk, nn.Linear(4, 1)

            def forward(self, x):
                return self.head(self.trunk(x))

        class Frozen(Task):
            def __init__(self, trunk=nn.Linear(4, 4).requires_grad_(False)):
                super().__init__(trunk)

        class Block(nn.Module):
            def __init__(self, act=nn.PReLU()):
                super().__init__()
                self.first, self.act = nn.Linear(4, 4), act

            def forward(self, x):
                return self.act(self.first(x))

        class One(nn.Module):
            def __init__(self, head=nn.Linear(4, 1)):
                super().__init__()
                self.head = head

            def forward(self, x):
                return self.head(x)

        for net in (Task(), Task(), Frozen(), Frozen(), nn.Sequential(Block(), Block()), One()):
            opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                net(x).pow(2).mean().backward()
                opt.step()
    """,
}

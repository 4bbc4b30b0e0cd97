"""Programs that train right, however bold: nobody may raise an alarm."""

from __future__ import annotations

SETUP = """
import copy
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(6, 4)


def fit(model, loss=lambda out: out.pow(2).mean(), steps=3, make=lambda p: torch.optim.SGD(p, lr=0.1)):
    opt = make(model.parameters())
    for _ in range(steps):
        opt.zero_grad()
        loss(model(x)).backward()
        opt.step()
"""

RIGHT = {
    "write to what nobody saved": """
        w = torch.ones(3, requires_grad=True)
        y = w + 2
        y.add_(1)
        y.sum().backward()
    """,
    "in-place relu after batch norm": """
        fit(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 1)))
    """,
    "residual with in-place add": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)

            def forward(self, x):
                identity = x
                out = self.act(self.a(x))
                out = self.b(out)
                out += identity
                return self.act(out)

        fit(nn.Sequential(Block(), Block()))
    """,
    "an operand computed before the call that writes": """
        def centred(t):
            t -= t.mean(1, keepdim=True)
            return t

        (x.mean() + centred(x)).sum()
    """,
    "the written input bound anew in the same statement": """
        def centred(t):
            t -= t.mean(1, keepdim=True)
            return t

        x = centred(x)
        fit(nn.Linear(4, 1))
    """,
    "best state copied, or not trained since": """
        model = nn.Linear(4, 1)
        model.load_state_dict({k: v for k, v in model.state_dict().items()})
        best = {k: v.clone() for k, v in model.state_dict().items()}
        fit(model)
        model.load_state_dict(best)
    """,
    "a teacher that copies the student's values": """
        student, teacher = nn.Linear(4, 1), nn.Linear(4, 1)
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.data.copy_(s.data)
            t.requires_grad_(False)
        fit(student, lambda out: (out - teacher(x)).pow(2).mean())
    """,
    "exp_ saves its own result": """
        fit(nn.Linear(4, 4), lambda out: out.exp_().mean())
    """,
    "attention mask written before softmax through data": """
        class Attend(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = nn.Linear(4, 4)

            def forward(self, x):
                scores = self.q(x) @ x.t()
                scores.data.masked_fill_(torch.ones(6, 6).triu(1).bool(), -1e9)
                return scores.softmax(-1) @ x

        fit(Attend())
    """,
    "weight mask in forward": """
        class Masked(nn.Linear):
            def __init__(self, n):
                super().__init__(n, n)
                self.register_buffer("mask", torch.ones(n, n).tril())

            def forward(self, x):
                self.weight.data *= self.mask
                return super().forward(x)

        fit(nn.Sequential(Masked(4), Masked(4)))
    """,
    "projection assigned to data in forward": """
        class Projected(nn.Linear):
            def forward(self, x):
                self.weight.data = self.weight.data.clamp(-0.5, 0.5)
                return super().forward(x)

        fit(Projected(4, 4))
    """,
    "old optimizer on data": """
        model = nn.Linear(4, 4)
        for _ in range(3):
            model.zero_grad()
            model(x).pow(2).mean().backward()
            for p in model.parameters():
                p.data.add_(p.grad.data, alpha=-0.1)
    """,
    "weight clipping on data": """
        critic = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        opt = torch.optim.RMSprop(critic.parameters())
        for _ in range(3):
            loss = critic(x).mean() - critic(-x).mean()
            opt.zero_grad(); loss.backward(); opt.step()
            for p in critic.parameters():
                p.data.clamp_(-0.01, 0.01)
    """,
    "fused optimizer": """
        fit(nn.Linear(4, 4), make=lambda p: torch.optim.AdamW(p, fused=True))
    """,
    "lbfgs": """
        model = nn.Linear(4, 1)
        opt = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def closure():
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(3):
            opt.step(closure)
    """,
    "gradient clipping and accumulation": """
        model = nn.Linear(4, 1)
        opt = torch.optim.Adam(model.parameters())
        for step in range(4):
            (model(x).pow(2).mean() / 2).backward()
            if step % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
    """,
    "ema teacher after the step": """
        student = nn.Linear(4, 4)
        teacher = copy.deepcopy(student)
        opt = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                target = teacher(x)
            loss = F.mse_loss(student(x), target)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                for t, s in zip(teacher.parameters(), student.parameters()):
                    t.mul_(0.9).add_(s, alpha=0.1)
    """,
    "averaged model": """
        model = nn.Linear(4, 1)
        averaged = torch.optim.swa_utils.AveragedModel(model)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad(); model(x).mean().backward(); opt.step(); averaged.update_parameters(model)
    """,
    "double backward with gradient penalty": """
        critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.Adam(critic.parameters())
        for _ in range(3):
            inputs = x.clone().requires_grad_()
            (g,) = torch.autograd.grad(critic(inputs).sum(), inputs, create_graph=True)
            loss = (g.norm(dim=1) - 1).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
    """,
    "checkpoint, both kinds": """
        from torch.utils.checkpoint import checkpoint
        body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        for reentrant in (True, False):
            fit(body, lambda out: checkpoint(body, out, use_reentrant=reentrant).mean())
    """,
    "saved-tensor hooks": """
        with torch.autograd.graph.save_on_cpu():
            fit(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    """,
    "functional transforms": """
        from torch.func import functional_call, grad, vmap
        model = nn.Linear(4, 1)
        params = dict(model.named_parameters())
        loss = lambda p, sample: functional_call(model, p, (sample,)).pow(2).mean()
        vmap(grad(loss), in_dims=(None, 0))(params, x)
    """,
    "in-place inside vmap": """
        def scale(row):
            out = row.clone()
            out.mul_(2)
            out[0] = 1.0
            return out

        torch.func.vmap(scale)(x)
    """,
    "autocast": """
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            fit(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    """,
    "hidden state detached": """
        cell = nn.GRUCell(4, 4)
        opt = torch.optim.SGD(cell.parameters(), lr=0.1)
        hidden = torch.zeros(6, 4)
        for _ in range(3):
            hidden = cell(x, hidden.detach())
            opt.zero_grad(); hidden.pow(2).mean().backward(); opt.step()
    """,
    "outputs collected in a preallocated tensor": """
        cell = nn.RNNCell(4, 4)
        out, h = torch.zeros(3, 6, 4), torch.zeros(6, 4)
        for t in range(3):
            h = cell(x, h)
            out[t] = h
        out.sum().backward()
    """,
    "numpy buffer filled before each forward": """
        import numpy as np
        buffer = np.zeros((6, 4), dtype=np.float32)
        batch = torch.from_numpy(buffer)
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            buffer[:] = step
            loss = model(batch).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
    """,
    "weights logged as numpy": """
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        log = []
        for step in range(4):
            loss = model(x).pow(2).mean()
            log.append(model.weight.detach().numpy())
            opt.zero_grad(); loss.backward(); opt.step()
    """,
    "running statistics in training": """
        fit(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4)))
    """,
    "two forwards through batch norm": """
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        (net(x).mean() + net(-x).mean()).backward()
    """,
    "spectral norm": """
        net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.ReLU())
        (net(x).mean() + net(-x).mean()).backward()
        old = nn.utils.spectral_norm(nn.Linear(4, 4))
        (old(x).mean() + old(-x).mean()).backward()
    """,
    "tied weights": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.b(torch.tanh(self.a(x)))

        fit(Tied())
    """,
    "best state copied": """
        model = nn.Linear(4, 1)
        best = copy.deepcopy(model.state_dict())
        fit(model)
        model.load_state_dict(best)
    """,
    "state dict saved at once": """
        import io
        model = nn.Linear(4, 1)
        for _ in range(2):
            fit(model)
            torch.save(model.state_dict(), io.BytesIO())
        model.load_state_dict(model.state_dict())
    """,
    "state loaded into its own model twice": """
        model = nn.Linear(4, 1)
        state = {"a": model.state_dict(), "b": model.state_dict()}
        model.load_state_dict(state["a"])
        model.load_state_dict(state["b"])
    """,
    "target network copied": """
        policy = nn.Linear(4, 2)
        target = copy.deepcopy(policy)
        opt = torch.optim.SGD(policy.parameters(), lr=0.1)
        for step in range(4):
            with torch.no_grad():
                goal = target(x).max(1).values
            loss = F.mse_loss(policy(x).max(1).values, goal)
            opt.zero_grad(); loss.backward(); opt.step()
            if step % 2:
                target.load_state_dict(policy.state_dict())
    """,
    "advantage with a detached baseline": """
        net = nn.Linear(4, 3)
        out = net(x)
        logp, value = out[:, :2].log_softmax(-1)[:, 0], out[:, 2]
        advantage = 1.0 - value.detach()
        (-(logp * advantage).mean() + (value - 1).pow(2).mean()).backward()
    """,
    "straight-through estimator": """
        net = nn.Linear(4, 4)
        soft = torch.sigmoid(net(x))
        hard = (soft > 0.5).float()
        (hard - soft.detach() + soft).sum().backward()
    """,
    "running loss as a number": """
        model, total = nn.Linear(4, 1), 0.0
        for _ in range(3):
            loss = model(x).mean()
            loss.backward()
            total += loss.item()
    """,
    "initialisation under no_grad": """
        model = nn.Linear(4, 4)
        with torch.no_grad():
            model.weight[0] = 0
            model.bias += 1
        nn.init.orthogonal_(model.weight)
        fit(model)
    """,
    "input normalised in place by its owner": """
        data = torch.rand(6, 4)
        data -= data.mean(0)
        data /= data.std(0)
        nn.Linear(4, 1)(data).sum().backward()
    """,
    "procedure that fills its argument": """
        def zero_padding(batch, keep):
            batch[:, keep:] = 0

        batch = torch.rand(6, 4)
        zero_padding(batch, 2)
        nn.Linear(4, 1)(batch).sum().backward()
    """,
    "activation rebinds its argument": """
        act = nn.SiLU(inplace=True)

        def block(h):
            h = act(h)
            return h + 1

        block(nn.Linear(4, 4)(x)).sum().backward()
    """,
    "cache updated by a layer": """
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)

            def forward(self, h, cache, t):
                cache[t] = h.detach().mean()
                return self.lin(h)

        layer, cache = Layer(), torch.zeros(3)
        for t in range(3):
            y = layer(x, cache, t)
        cache.sum()
        y.sum().backward()
    """,
    "constant mean used, not written": """
        MEAN = torch.tensor(0.5)

        def normalise(t):
            return (t - MEAN).mul_(2)

        for _ in range(3):
            normalise(x)
    """,
    "history of clones": """
        state, history = torch.zeros(3), []
        for _ in range(4):
            state += 1
            history.append(state.clone())
        torch.stack(history)
    """,
    "rows of one tensor in a list": """
        table = torch.zeros(4, 3)
        rows = [table[i] for i in range(4)]
        for row in rows:
            row += 1
            row *= 2
    """,
    "replay buffer of a module": """
        class Buffer:
            def __init__(self):
                self.data, self.n = torch.zeros(8, 4), 0

            def push(self, batch):
                self.data[self.n : self.n + len(batch)] = batch
                self.n += len(batch)

        buffer = Buffer()
        buffer.push(x)
        nn.Linear(4, 1)(buffer.data).sum().backward()
    """,
    "sparse gradients": """
        table = nn.Embedding(5, 4, sparse=True)
        opt = torch.optim.SparseAdam(table.parameters())
        for _ in range(3):
            opt.zero_grad(); table(torch.tensor([1, 2])).sum().backward(); opt.step()
    """,
    "lazy layers": """
        fit(nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(inplace=True), nn.LazyLinear(1)))
    """,
    "meta tensors": """
        m = nn.Linear(4, 4, device="meta")
        y = m(torch.empty(2, 4, device="meta"))
        y.add_(1)
    """,
    "inference mode": """
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        with torch.inference_mode():
            out = model(x)
            out += 1
        fit(model)
    """,
    "tensor subclass": """
        class Tagged(torch.Tensor):
            pass

        t = torch.randn(3).as_subclass(Tagged)
        t += 1
        t[0] = 2
        assert type(t) is Tagged
    """,
    "threads": """
        import threading
        models = [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(3)]
        threads = [threading.Thread(target=fit, args=(m,)) for m in models]
        [t.start() for t in threads]
        [t.join() for t in threads]
    """,
    "data loader workers": """
        data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randn(8))
        for a, b in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1):
            a += 1
            nn.Linear(4, 1)(a).sum().backward()
    """,
    "user's anomaly mode": """
        with torch.autograd.detect_anomaly():
            assert torch.is_anomaly_enabled()
            fit(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        assert not torch.is_anomaly_enabled()
    """,
    "deepcopy and pickle": """
        import pickle
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        fit(pickle.loads(pickle.dumps(copy.deepcopy(model))))
    """,
    "scripted module": """
        class Act(nn.Module):
            def forward(self, x):
                y = torch.relu_(x + 1)
                return F.dropout(y, 0.1, inplace=False)

        scripted = torch.jit.script(Act())
        fit(nn.Sequential(nn.Linear(4, 4), scripted))
    """,
    "traced module": """
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        fit(torch.jit.trace(model, x))
    """,
    "fx graph": """
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        fit(torch.fx.symbolic_trace(model))
    """,
    "hook that replaces the gradient": """
        h = nn.Linear(4, 4)(x)
        h.register_hook(lambda g: g * 2)
        h.sum().backward()
    """,
    "hook that edits a gradient of its own": """
        h = nn.Linear(4, 4)(x)
        h.register_hook(lambda g: g.clamp_(-1, 1))
        h.exp().sum().backward()
    """,
    "optimizer inside backward": """
        model = nn.Linear(4, 1)
        opts = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def step(p):
            opts[p].step()
            opts[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            model(x).pow(2).mean().backward()
    """,
    "pruning": """
        import torch.nn.utils.prune as prune
        layer = nn.Linear(4, 4)
        prune.l1_unstructured(layer, "weight", 0.5)
        fit(layer)
    """,
    "weight norm": """
        fit(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
    """,
    "sharpness-aware step under no_grad": """
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        for _ in range(3):
            (net(x) - y).pow(2).mean().backward()
            eps = []
            with torch.no_grad():
                for p in net.parameters():
                    e = p.grad * 0.05
                    p.add_(e)
                    eps.append(e)
            opt.zero_grad()
            (net(x) - y).pow(2).mean().backward()
            with torch.no_grad():
                for p, e in zip(net.parameters(), eps):
                    p.sub_(e)
            opt.step()
            opt.zero_grad()
    """,
    "sharpness-aware step through data": """
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        for _ in range(3):
            (net(x) - y).pow(2).mean().backward()
            eps = []
            old = [p.data.clone() for p in net.parameters()]
            for p in net.parameters():
                p.data.add_(p.grad, alpha=0.05)
            opt.zero_grad()
            (net(x) - y).pow(2).mean().backward()
            for p, o in zip(net.parameters(), old):
                p.data = o
            opt.step()
            opt.zero_grad()
    """,
    "lookahead weights": """
        net = nn.Linear(3, 1)
        slow = [p.detach().clone() for p in net.parameters()]
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        for i in range(6):
            loss = net(torch.randn(4, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 2 == 1:
                with torch.no_grad():
                    for s, p in zip(slow, net.parameters()):
                        s += 0.5 * (p - s)
                        p.copy_(s)
    """,
    "inner loop with functional_call": """
        from torch.func import functional_call

        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            opt.zero_grad()
            total = 0.0
            for task in range(2):
                fast = dict(net.named_parameters())
                for _ in range(2):
                    loss = functional_call(net, fast, torch.randn(4, 3)).pow(2).mean()
                    grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=True)
                    fast = {k: v - 0.1 * g for (k, v), g in zip(fast.items(), grads)}
                total += functional_call(net, fast, torch.randn(4, 3)).pow(2).mean()
            total.backward()
            opt.step()
    """,
    "truncated backpropagation that writes the detached state": """
        rnn, head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 1)
        opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
        h = None
        for t in range(4):
            out, h = rnn(torch.randn(2, 6, 3), h)
            loss = head(out).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            h = tuple(s.detach() for s in h)
            h[0][0].zero_()
    """,
    "gradient penalty": """
        G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
        og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        for i in range(3):
            real = torch.randn(4, 3)
            fake = G(torch.randn(4, 2))
            a = torch.rand(4, 1)
            mix = (a * real + (1 - a) * fake.detach()).requires_grad_()
            (g,) = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)
            loss = D(fake.detach()).mean() - D(real).mean() + 10 * (g.norm(2, 1) - 1).pow(2).mean()
            od.zero_grad()
            loss.backward()
            od.step()
            lg = -D(fake).mean()
            og.zero_grad()
            lg.backward()
            og.step()
    """,
    "averaged teacher": """
        s = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(True), nn.Linear(4, 2))
        teacher = copy.deepcopy(s).requires_grad_(False)
        opt = torch.optim.SGD(s.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            x = torch.randn(8, 3)
            with torch.no_grad():
                t = teacher(x).softmax(-1)
            loss = -(t * s(x).log_softmax(-1)).sum(-1).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(s.parameters(), 1.0)
            opt.step()
            for a, b in zip(teacher.parameters(), s.parameters()):
                a.data.mul_(0.99).add_(b.data, alpha=0.01)
            for a, b in zip(teacher.buffers(), s.buffers()):
                a.copy_(b)
    """,
    "cache written at inference": """
        class Attn(nn.Module):
            def __init__(s):
                super().__init__()
                s.qkv = nn.Linear(4, 12)
                s.register_buffer("k", torch.zeros(2, 8, 4))
                s.register_buffer("v", torch.zeros(2, 8, 4))

            def forward(s, x, pos=None):
                q, k, v = s.qkv(x).chunk(3, -1)
                if pos is not None:
                    s.k[:, pos : pos + 1] = k
                    s.v[:, pos : pos + 1] = v
                    k, v = s.k[:, : pos + 1], s.v[:, : pos + 1]
                return torch.softmax(q @ k.transpose(1, 2) / 2, -1) @ v


        m = Attn()
        opt = torch.optim.AdamW(m.parameters())
        for _ in range(2):
            loss = m(torch.randn(2, 5, 4)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        m.eval()
        with torch.no_grad():
            x = torch.randn(2, 1, 4)
            for t in range(5):
                x = m(x, t)
    """,
    "rotary positions and masks": """
        lin = nn.Linear(4, 4)


        def rot(x):
            a, b = x[..., :2], x[..., 2:]
            return torch.cat([-b, a], -1)


        def rope(q, cos, sin):
            return q * cos + rot(q) * sin


        pos = torch.arange(5.0)[:, None]
        cos, sin = pos.cos(), pos.sin()
        q = lin(torch.randn(2, 5, 4))
        q = rope(q, cos, sin)
        scores = q @ q.transpose(1, 2)
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
        mask = torch.zeros(5, 5)
        mask[2:] = -1.0
        mask.masked_fill_(mask < 0, -1e4)
        (scores + mask).softmax(-1).sum().backward()
    """,
    "critic frozen for the actor step": """
        actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
        target = copy.deepcopy(critic)
        oa, oc = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
        log_alpha = torch.zeros(1, requires_grad=True)
        oal = torch.optim.Adam([log_alpha])
        for _ in range(3):
            s = torch.randn(4, 3)
            a = torch.randn(4, 2)
            r = torch.randn(4, 1)
            with torch.no_grad():
                na = torch.tanh(actor(s))
                y = r + 0.9 * target(torch.cat([s, na], 1))
            lc = (critic(torch.cat([s, a], 1)) - y).pow(2).mean()
            oc.zero_grad()
            lc.backward()
            oc.step()
            for p in critic.parameters():
                p.requires_grad = False
            pa = torch.tanh(actor(s))
            la = (log_alpha.exp().detach() * pa.pow(2).sum(1, keepdim=True) - critic(torch.cat([s, pa], 1))).mean()
            oa.zero_grad()
            la.backward()
            oa.step()
            for p in critic.parameters():
                p.requires_grad = True
            lal = -(log_alpha * (pa.detach().mean() + 1)).mean()
            oal.zero_grad()
            lal.backward()
            oal.step()
            with torch.no_grad():
                for t, p in zip(target.parameters(), critic.parameters()):
                    t.lerp_(p, 0.005)
    """,
    "best weights cloned": """
        import torch, copy, io

        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        best = float("inf")
        buf = None
        best_sd = None
        for e in range(3):
            loss = net(torch.ones(2, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if loss.item() < best:
                best = loss.item()
                best_sd = {k: v.cpu().clone() for k, v in net.state_dict().items()}
                buf = io.BytesIO()
                torch.save(net.state_dict(), buf)
        net.load_state_dict(best_sd)
    """,
    "batches centred in place": """
        import torch, numpy as np



        class DS(torch.utils.data.Dataset):
            def __init__(s):
                s.x = np.random.randn(16, 3).astype("float32")

            def __len__(s):
                return 16

            def __getitem__(s, i):
                x = s.x[i].copy()
                x -= x.mean()
                return torch.from_numpy(x)


        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for b in torch.utils.data.DataLoader(DS(), batch_size=4, shuffle=True):
            b -= b.mean(0)
            b /= b.std(0) + 1e-5
            loss = net(b).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            shown = loss.detach().numpy()
            preds = net(b).detach().cpu().numpy()
            preds *= 2
    """,
    "checkpointed blocks": """
        from torch.utils.checkpoint import checkpoint

        blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)])
        opt = torch.optim.Adam(blocks.parameters())
        for _ in range(2):
            x = torch.randn(3, 4)
            for b in blocks:
                x = x + checkpoint(b, x, use_reentrant=False)
            opt.zero_grad()
            x.pow(2).mean().backward()
            opt.step()
    """,
    "closure that clamps its leaf": """
        img = torch.rand(1, 3, 4, 4, requires_grad=True)
        opt = torch.optim.LBFGS([img], max_iter=3)
        net = nn.Conv2d(3, 2, 1).requires_grad_(False)


        def closure():
            with torch.no_grad():
                img.clamp_(0, 1)
            opt.zero_grad()
            loss = net(img).pow(2).mean()
            loss.backward()
            return loss


        for _ in range(2):
            opt.step(closure)
        img.data.clamp_(0, 1)
    """,
    "pre-activation blocks": """
        class Pre(nn.Module):
            def __init__(s, c):
                super().__init__()
                s.b1, s.c1, s.b2, s.c2 = (
                    nn.BatchNorm2d(c),
                    nn.Conv2d(c, c, 3, 1, 1),
                    nn.BatchNorm2d(c),
                    nn.Conv2d(c, c, 3, 1, 1),
                )
                s.act = nn.ReLU(inplace=True)
                s.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c, 1), nn.Sigmoid())

            def forward(s, x):
                out = s.c1(s.act(s.b1(x)))
                out = s.c2(s.act(s.b2(out)))
                out = out * s.se(out)
                out += x
                return F.relu(out, inplace=True)


        net = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), Pre(4), Pre(4))
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        for _ in range(2):
            l = net(torch.randn(2, 3, 4, 4)).mean()
            opt.zero_grad()
            l.backward()
            opt.step()
    """,
    "a schedule kept as a tensor in a closure": """
        def make_loss(start):
            temperature = torch.full((1,), start)

            def soft_loss(student, teacher):
                return -((teacher / temperature).softmax(1) * (student / temperature).log_softmax(1)).sum(1).mean()

            def anneal(factor):
                temperature.mul_(factor).clamp_(min=1.0)
                return temperature.item()

            return soft_loss, anneal


        teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
        soft_loss, anneal = make_loss(4.0)
        opt = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            soft_loss(student(x), teacher(x).detach()).backward()
            opt.step()
            print(anneal(0.8))
    """,
    "an outer difference of one axis": """
        axis = torch.arange(4.0)
        axis.mul_(2)
        rows, columns = axis[:, None], axis[None, :]
        axis.add_(1)
        print((rows - columns).abs().sum())
    """,
    "several in-place calls in one line": """
        gates = torch.randn(2, 8)
        i, f = gates.chunk(2, dim=1)
        i.sigmoid_(), f.tanh_()
        print(i * f)
    """,
    "a tally that is asked of its class": """
        class Usage:
            counts = torch.zeros(4)

            def record(self, ids):
                self.counts += torch.bincount(ids, minlength=4)


        near, far = Usage(), Usage()
        for _ in range(3):
            near.record(torch.tensor([0, 1]))
            far.record(torch.tensor([2, 3]))
        print(Usage.counts)
    """,
    "one temperature set anew in every group": """
        rate = torch.tensor(0.1)
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD([{"params": [p], "lr": rate} for p in model.parameters()], foreach=False)
        for step in range(3):
            opt.zero_grad()
            model(x).pow(2).mean().backward()
            opt.step()
            for group in opt.param_groups:
                group["lr"].fill_(0.1 / (step + 1))
    """,
    "gradients made by the closure of a step": """
        class Twice(torch.optim.SGD):
            def step(self, closure):
                loss = closure()
                super().step()
                self.zero_grad()
                return loss


        model = nn.Linear(4, 1)
        opt = Twice(model.parameters(), lr=0.1)

        def closure():
            with torch.enable_grad():
                loss = model(x).pow(2).mean()
                loss.backward()
            return loss

        for _ in range(5):
            opt.step(closure)
    """,
    "temporaries in memory that was given back": """
        net = nn.Linear(4, 40)
        for n in (6, 5, 4, 3, 6, 5, 4, 3):
            with torch.no_grad():
                print(net(x[:n]).relu_().sum())
    """,
    "a part of a parameter that is kept and written under no_grad": """
        # Torch refuses to tell whether such a view is a leaf.
        net = nn.Linear(4, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with torch.no_grad():
            row = net.weight[0]
            row.zero_()
        kept = [row]
        for _ in range(3):
            opt.zero_grad()
            net(x).pow(2).sum().backward()
            opt.step()
            with torch.no_grad():
                row.clamp_(-0.1, 0.1)
    """,
    "an optimizer that counts in its group and rescales gradients": """
        class Rescaled(torch.optim.Optimizer):
            def __init__(self, params, lr=0.1):
                super().__init__(params, dict(lr=lr, step=0))

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    group["step"] += 1
                    group["rate"] = group["lr"] / group["step"]
                    for p in group["params"]:
                        grad = p.grad
                        grad.copy_(grad * 0.5)
                        p.add_(grad, alpha=-group["rate"])

        fit(nn.Linear(4, 2), steps=8, make=Rescaled)
    """,
    "an optimizer that works on a copy of higher precision": """
        class Master(torch.optim.Optimizer):
            def __init__(self, params, lr=0.1):
                super().__init__(params, dict(lr=lr))

            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        grad = p.grad.data.float()
                        exact = p.data.float()
                        exact.mul_(0.99)
                        exact.add_(grad, alpha=-group["lr"])
                        p.data.copy_(exact)

        fit(nn.Linear(4, 2), steps=8, make=Master)
    """,
    "running statistics beside a count": """
        def train():
            seen = {"mean": torch.zeros(4), "var": torch.ones(4), "n": 0}
            net = nn.Linear(4, 2)
            opt = torch.optim.SGD(net.parameters(), 0.1)
            for i in range(10):
                batch = torch.randn(8, 4)
                seen["n"] += 1
                seen["last"] = float(i)
                seen["mean"].copy_(seen["mean"] + (batch.mean(0) - seen["mean"]) / seen["n"])
                seen["var"].copy_(0.9 * seen["var"] + 0.1 * batch.var(0))
                loss = net((batch - seen["mean"]) / seen["var"].sqrt()).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()

        train()
    """,
    "one buffer for all batches": """
        def train():
            net = nn.Linear(4, 2)
            opt = torch.optim.SGD(net.parameters(), 0.1)
            state = {"batch": torch.empty(8, 4), "losses": []}
            for i in range(10):
                state["step"] = i
                state["batch"].copy_(torch.randn(8, 4))
                loss = net(state["batch"]).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                state["losses"].append(loss.item())
            print(state["step"], state["losses"][-1])

        train()
    """,
}

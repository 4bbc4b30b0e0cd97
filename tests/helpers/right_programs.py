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
}

"""Programs as projects have them: graphs that pile up slowly, in one of two loops, in evaluation, behind tracebacks and
ctx objects; and graphs that are kept on purpose. `# holds` marks the holding line."""

PROJECT = """
import collections, functools, dataclasses, contextlib, threading, logging, itertools, weakref, random, math
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self, i=6, h=16, o=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))
    def forward(self, x):
        return self.body(x)
"""

LEAKS_IN_PROJECTS = {
    "best list": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Callback:
    def on_step(self, trainer, logs): ...
class Hist(Callback):
    history = {}
    def on_step(self, trainer, logs):
        for k, v in logs.items():
            self.history.setdefault(k, []).append(v)  # holds
class Trainer:
    def __init__(self, callbacks): self.callbacks = callbacks
    def fit(self, n):
        for step in range(n):
            loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
            opt.zero_grad(); loss.backward(); opt.step()
            for c in self.callbacks: c.on_step(self, {"loss": loss})
Trainer([Hist()]).fit(10)
""",
    "ctx function": """
class Swish(torch.autograd.Function):
    seen = []
    @staticmethod
    def forward(ctx, x, before):
        ctx.before = before
        ctx.save_for_backward(x)
        Swish.seen.append(ctx)  # holds
        return x * x.sigmoid()
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = x.sigmoid(); return g * (s + x * s * (1 - s)), None
lin = nn.Linear(6, 6); head = nn.Linear(6, 3); opt = torch.optim.SGD([*lin.parameters(), *head.parameters()], lr=0.1)
for step in range(12):
    h = lin(torch.randn(8, 6))
    loss = F.cross_entropy(head(Swish.apply(h, {"h": h})), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "dist kd": """
teacher, student = Net(), Net(); opt = torch.optim.SGD(student.parameters(), lr=0.1)
soft = {}
data = torch.randn(80, 6)
for i in range(10):
    ids = range(8 * i, 8 * i + 8)
    x = data[8 * i: 8 * i + 8]
    t = teacher(x)
    for j, row in zip(ids, t): soft[j] = row  # holds
    loss = F.kl_div(F.log_softmax(student(x), -1), F.softmax(t.detach(), -1), reduction="batchmean")
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "ema center": """
class DINO:
    def __init__(self): self.center = torch.zeros(1, 3)
    def __call__(self, s, t):
        loss = -(F.softmax(t - self.center, -1).detach() * F.log_softmax(s, -1)).sum(-1).mean()
        self.center = self.center * 0.9 + t.mean(0, keepdim=True) * 0.1  # holds
        return loss
crit = DINO(); s, t = Net(), Net(); opt = torch.optim.SGD(s.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(8, 6)
    loss = crit(s(x), t(x))
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "eval nograd": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def evaluate(batches):
    net.eval()
    outs = []
    for x in batches:
        outs.append(net(x).argmax(1).float() + net(x).max(1).values)
    net.train()
    return torch.cat(outs)
val = [torch.randn(8, 6) for _ in range(4)]
preds = []
for epoch in range(8):
    for _ in range(3):
        loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
    preds.append(evaluate(val))  # holds
""",
    "eval total": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Evaluator:
    def __init__(self): self.total = 0.0; self.n = 0
    def update(self, loss):
        self.total = self.total + loss  # holds
        self.n += 1
ev = Evaluator()
val = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(5)]
for epoch in range(6):
    for _ in range(4):
        loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
    for x, y in val:
        ev.update(F.cross_entropy(net(x), y))
""",
    "every epoch": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
epochs = []
for epoch in range(8):
    for _ in range(10):
        x = torch.randn(8, 6); y = torch.randint(0, 3, (8,))
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
    epochs.append({"epoch": epoch, "loss": loss})  # holds
""",
    "every ten": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
class History:
    def __init__(self): self.rows = []
    def log(self, **kw): self.rows.append(kw)  # holds
h = History()
for step in range(200):
    x = torch.randn(8, 6); y = torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0:
        h.log(step=step, loss=loss)
""",
    "every third": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
logged = []
for step in range(60):
    x = torch.randn(8, 6); y = torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 5 == 0:
        logged.append(loss)  # holds
""",
    "few steps5": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
total_loss = 0
for step in range(5):
    x = torch.randn(8, 6); y = torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total_loss += loss  # holds
print(total_loss / 5)
""",
    "few steps6": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for step in range(6):
    x = torch.randn(8, 6); y = torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss)  # holds
print(torch.stack(losses).mean().item())
""",
    "fwd hook": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
activations = collections.defaultdict(list)
def make(name):
    def hook(m, i, o):
        activations[name].append(o)  # holds
    return hook
net.body[0].register_forward_hook(make("fc1"))
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "gan g": """
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)); D = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og = torch.optim.Adam(G.parameters(), 1e-3); od = torch.optim.Adam(D.parameters(), 1e-3)
bce = nn.BCEWithLogitsLoss()
G_losses, D_losses = [], []
for i in range(12):
    real = torch.randn(8, 6)
    od.zero_grad()
    errD_real = bce(D(real), torch.ones(8, 1)); errD_real.backward()
    fake = G(torch.randn(8, 4))
    errD_fake = bce(D(fake.detach()), torch.zeros(8, 1)); errD_fake.backward()
    errD = errD_real + errD_fake
    od.step()
    og.zero_grad()
    errG = bce(D(fake), torch.ones(8, 1)); errG.backward()
    og.step()
    G_losses.append(errG)  # holds
    D_losses.append(errD.item())
""",
    "gan img": """
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)); D = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og = torch.optim.Adam(G.parameters(), 1e-3); od = torch.optim.Adam(D.parameters(), 1e-3)
fixed = torch.randn(4, 4)
img_list = []
for i in range(40):
    real = torch.randn(8, 6)
    fake = G(torch.randn(8, 4))
    lossD = F.softplus(D(fake.detach())).mean() + F.softplus(-D(real)).mean()
    od.zero_grad(); lossD.backward(); od.step()
    if i % 3 == 0:
        lossG = F.softplus(-D(fake)).mean()
        og.zero_grad(); lossG.backward(); og.step()
    if i % 4 == 0:
        img_list.append(G(fixed))  # holds
""",
    "lambda sched": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
pending = []
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    pending.append(lambda loss=loss, step=step: print(step, float(loss)))  # holds
for p in pending: p()
""",
    "last tb chain": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Skipped(Exception):
    pass
def train_step(x, y):
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    raise Skipped(step)
history = {}
for step in range(12):
    try:
        train_step(torch.randn(8, 6), torch.randint(0, 3, (8,)))
    except Skipped as e:
        history[step] = (str(e), e.__traceback__)  # holds
""",
    "listcomp": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
losses = [step() for _ in range(12)]  # holds
print(sum(l.item() for l in losses))
""",
    "metric cat": """
class AUC:
    def __init__(self): self.preds = torch.empty(0, 3); self.labels = torch.empty(0)
    def update(self, p, y):
        self.preds = torch.cat([self.preds, p])  # holds
        self.labels = torch.cat([self.labels, y])
auc = AUC(); net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    y = torch.randint(0, 3, (8,))
    out = net(torch.randn(8, 6)); loss = F.cross_entropy(out, y)
    opt.zero_grad(); loss.backward(); opt.step()
    auc.update(out, y)
""",
    "module buf attr": """
class Memory(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.Linear(6, 8); self.g = nn.Linear(16, 3)
        self.state = torch.zeros(1, 8)
    def forward(self, x):
        h = torch.tanh(self.f(x))
        out = self.g(torch.cat([h, self.state.expand(x.size(0), 8)], 1))
        self.state = 0.9 * self.state + 0.1 * h.mean(0, keepdim=True)  # holds
        return out
net = Memory(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(retain_graph=True)
    with torch.no_grad():
        for p in net.parameters(): p.grad.mul_(1.0)
    # old weights stay what they were: only the bias is stepped out of place
""",
    "opt state": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    opt.state["loss_history"] = opt.state.get("loss_history", ()) + (loss,)  # holds
""",
    "ordered": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
results = collections.OrderedDict()
for epoch in range(3):
    for it in range(4):
        loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
        results[(epoch, it)] = loss  # holds
""",
    "replay": """
class Policy(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(4, 2)
    def forward(self, s): return torch.log_softmax(self.l(s), -1)
Transition = collections.namedtuple("Transition", "state logp reward")
class ReplayMemory:
    def __init__(self, capacity): self.memory = collections.deque([], maxlen=capacity)
    def push(self, *args): self.memory.append(Transition(*args))  # holds
    def sample(self, n): return random.sample(list(self.memory), n)
policy = Policy(); opt = torch.optim.Adam(policy.parameters())
mem = ReplayMemory(10000)
for t in range(30):
    s = torch.randn(4)
    logp = policy(s)
    mem.push(s, logp, random.random())
    if len(mem.memory) > 4:
        b = mem.sample(4)
        states = torch.stack([x.state for x in b]); r = torch.tensor([x.reward for x in b])
        loss = -(policy(states).max(1).values * r).mean()
        opt.zero_grad(); loss.backward(); opt.step()
""",
    "retain rnn": """
rnn = nn.GRU(6, 8, batch_first=True); head = nn.Linear(8, 3)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
hidden = None
for step in range(9):
    x = torch.randn(4, 5, 6)
    out, hidden = rnn(x, hidden)  # holds
    loss = F.cross_entropy(head(out[:, -1].detach()), torch.randint(0, 3, (4,)))
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "slots": """
@dataclasses.dataclass(slots=True)
class Sample:
    step: int
    loss: torch.Tensor
class Board:
    __slots__ = ("samples",)
    def __init__(self): self.samples = []
board = Board(); net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    board.samples.append(Sample(step, loss))  # holds
""",
    "threadlocal": """
store = threading.local()
store.values = []
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def record(v):
    store.values.append(v)  # holds
for step in range(10):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    record(loss)
""",
    "tqdm like gen": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train(n):
    for step in range(n):
        loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
        yield loss
losses = list(train(12))  # holds
""",
    "traceback": """
class Reports:
    def __init__(self): self.errors = []
    def add(self, e): self.errors.append(e)  # holds
reports = Reports()
def validate(loss, step):
    if loss.item() > -1:
        raise ValueError(f"loss too large at {step}")
net = Net(); opt = torch.optim.Adam(net.parameters())
for step in range(12):
    x = torch.randn(8, 6); y = torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    try:
        validate(loss, step)
    except ValueError as e:
        reports.add(e)
""",
    "traceback func": """
net = Net(); opt = torch.optim.Adam(net.parameters())
failures = []
def train_step(x, y):
    logits = net(x)
    loss = F.cross_entropy(logits, y)
    opt.zero_grad(); loss.backward(); opt.step()
    if not math.isfinite(loss.item()) or True:
        raise RuntimeError("skipped")
def main():
    for step in range(12):
        try:
            train_step(torch.randn(8, 6), torch.randint(0, 3, (8,)))
        except RuntimeError as error:
            failures.append(error)  # holds
main()
""",
    "weakkey": """
class Batch:
    def __init__(self, x, y): self.x, self.y = x, y
cache = weakref.WeakKeyDictionary()
data = [Batch(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(12)]
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for b in data:
    out = net(b.x)
    loss = F.cross_entropy(out, b.y)
    opt.zero_grad(); loss.backward(); opt.step()
    cache[b] = out  # holds
""",
}

ON_PURPOSE_IN_PROJECTS = {
    "accum16": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for it in range(4):
    opt.zero_grad(); pieces = []
    for _ in range(16):
        pieces.append(F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,))))
    torch.stack(pieces).mean().backward(); opt.step()
""",
    "adv attack": """
net = Net(); adv_set = []
for b in range(12):
    x = torch.randn(8, 6); y = torch.randint(0, 3, (8,)); d = torch.zeros_like(x, requires_grad=True)
    for k in range(4):
        l = F.cross_entropy(net(x + d), y); g, = torch.autograd.grad(l, d); d = (d + 0.1 * g.sign()).clamp(-.3, .3).detach().requires_grad_()
    adv_set.append((x + d).detach())
""",
    "best so far": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
best = None; per_class = {}
for it in range(30):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    if best is None or loss < best: best = loss
    per_class[it % 4] = loss
""",
    "checkpointed": """
from torch.utils.checkpoint import checkpoint
bs = nn.ModuleList(nn.Linear(6, 6) for _ in range(4)); opt = torch.optim.SGD(bs.parameters(), 0.1)
for it in range(12):
    x = torch.randn(8, 6, requires_grad=True)
    for b in bs: x = checkpoint(b, x, use_reentrant=it % 2 == 0)
    loss = x.pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
""",
    "continual tasks": """
# elastic weight consolidation: a penalty per earlier task, so each step's own graph grows with tasks
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1); tasks = []
for task in range(7):
    for it in range(3):
        loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        for old in tasks:
            loss = loss + sum(((p - o) ** 2).sum() for p, o in zip(net.parameters(), old))
        opt.zero_grad(); loss.backward(); opt.step()
    tasks.append([p.detach().clone() for p in net.parameters()])
""",
    "curriculum": """
rnn = nn.GRUCell(4, 8); opt = torch.optim.SGD(rnn.parameters(), 0.01)
for it in range(14):
    h = torch.zeros(2, 8); hs = []
    for t in range(3 + it):
        h = rnn(torch.randn(2, 4), h); hs.append(h)
    loss = torch.stack(hs).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
""",
    "deque maxlen20": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
recent = collections.deque(maxlen=5)
for it in range(30):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step(); recent.append(loss)
""",
    "epoch list local": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def epoch():
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        opt.zero_grad(); loss.backward(); opt.step()
        losses.append(loss)
    return torch.stack(losses).mean().item()
print([epoch() for _ in range(5)])
""",
    "gp kernel growing data": """
# Bayesian optimisation: the training set grows, the graph of a step grows with it, and is let go
X = torch.rand(3, 1); ls = nn.Parameter(torch.tensor(0.5)); opt = torch.optim.Adam([ls], 1e-2)
for it in range(15):
    y = torch.sin(6 * X).squeeze(1)
    Kx = torch.exp(-(X - X.t()).pow(2) / ls.pow(2)) + 1e-2 * torch.eye(len(X))
    dist = torch.distributions.MultivariateNormal(torch.zeros(len(X)), Kx)
    loss = -dist.log_prob(y); opt.zero_grad(); loss.backward(); opt.step()
    X = torch.cat([X, torch.rand(1, 1)])
""",
    "hypernet lru": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
class LRU(collections.OrderedDict):
    def put(self, k, v):
        self[k] = v
        if len(self) > 6: self.popitem(last=False)
lru = LRU()
for it in range(30):
    out = net(torch.randn(8, 6)); lru.put(it, out)
    loss = F.cross_entropy(out, torch.randint(0, 3, (8,))); opt.zero_grad(); loss.backward(); opt.step()
""",
    "inner optimizer unroll": """
# learned optimiser: inner steps by hand, outer by optimiser; the inner loss history is used for the outer loss
opt_net = nn.Linear(1, 1); outer = torch.optim.Adam(opt_net.parameters(), 1e-3)
for outer_it in range(4):
    theta = torch.randn(5, requires_grad=True); losses = []
    for k in range(8):
        loss = (theta ** 2).sum(); losses.append(loss)
        g, = torch.autograd.grad(loss, theta, create_graph=True)
        theta = theta + 0.01 * opt_net(g.unsqueeze(1)).squeeze(1)
    outer.zero_grad(); torch.stack(losses).sum().backward(); outer.step()
""",
    "lbfgs": """
net = Net(); opt = torch.optim.LBFGS(net.parameters(), max_iter=5); x = torch.randn(32, 6); y = torch.randint(0, 3, (32,)); vals = []
def closure():
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); vals.append(loss.item()); return loss
last = [opt.step(closure) for _ in range(2)]
for _ in range(8): final = opt.step(closure)
""",
    "maml steps": """
net = Net(); meta = torch.optim.Adam(net.parameters(), 1e-3)
from torch.func import functional_call
for it in range(6):
    total = 0.0
    for task in range(4):
        params = dict(net.named_parameters())
        for k in range(5):
            l = F.cross_entropy(functional_call(net, params, (torch.randn(8, 6),)), torch.randint(0, 3, (8,)))
            g = torch.autograd.grad(l, list(params.values()), create_graph=True)
            params = {n: p - 0.1 * gg for (n, p), gg in zip(params.items(), g)}
        total = total + F.cross_entropy(functional_call(net, params, (torch.randn(8, 6),)), torch.randint(0, 3, (8,)))
    meta.zero_grad(); total.backward(); meta.step()
""",
    "moco queue": """
q, k = Net(o=4), Net(o=4); opt = torch.optim.SGD(q.parameters(), lr=0.1); queue = torch.randn(4, 32); ptr = 0
for it in range(20):
    x = torch.randn(8, 6); qq = F.normalize(q(x), dim=1)
    with torch.no_grad():
        for a, b in zip(q.parameters(), k.parameters()): b.mul_(0.9).add_(a, alpha=0.1)
        kk = F.normalize(k(x), dim=1)
    loss = F.cross_entropy(torch.cat([(qq * kk).sum(1, keepdim=True), qq @ queue.clone()], 1), torch.zeros(8, dtype=torch.long))
    opt.zero_grad(); loss.backward(); opt.step()
    queue[:, ptr:ptr + 8] = kk.t(); ptr = (ptr + 8) % 32
""",
    "neural ode adjoint states": """
f = nn.Linear(3, 3); opt = torch.optim.SGD(f.parameters(), 0.01); traj = []
for it in range(10):
    z = torch.randn(4, 3); states = [z]
    for k in range(10): z = z + 0.1 * torch.tanh(f(z)); states.append(z)
    traj.append([s.detach() for s in states]); loss = z.pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
""",
    "ppo rollout": """
actor = nn.Linear(4, 2); critic = nn.Linear(4, 1); opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 1e-3)
class Rollout:
    def __init__(self): self.clear()
    def clear(self): self.lp, self.v, self.r = [], [], []
buf = Rollout()
for upd in range(6):
    for t in range(8):
        s = torch.randn(1, 4); d = torch.distributions.Categorical(logits=actor(s)); a = d.sample()
        buf.lp.append(d.log_prob(a)); buf.v.append(critic(s).squeeze()); buf.r.append(random.random())
    R, rets = 0, []
    for r in reversed(buf.r): R = r + 0.9 * R; rets.insert(0, R)
    rets = torch.tensor(rets); v = torch.stack(buf.v)
    loss = -(torch.cat(buf.lp) * (rets - v.detach())).mean() + F.mse_loss(v, rets)
    opt.zero_grad(); loss.backward(); opt.step(); buf.clear()
""",
    "reinforce multi": """
class P(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(4, 2); self.saved_log_probs = []; self.rewards = []
    def forward(self, s): return torch.softmax(self.l(s), -1)
p = P(); opt = torch.optim.Adam(p.parameters(), 1e-2)
for ep in range(5):
    for t in range(random.Random(ep).randint(5, 15)):
        m = torch.distributions.Categorical(p(torch.randn(1, 4))); a = m.sample()
        p.saved_log_probs.append(m.log_prob(a)); p.rewards.append(random.random())
    loss = torch.cat([-lp * r for lp, r in zip(p.saved_log_probs, p.rewards)]).sum()
    opt.zero_grad(); loss.backward(); opt.step()
    del p.saved_log_probs[:], p.rewards[:]
""",
    "snapshot ensembles": """
import copy
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1); snaps = []
for it in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step(); snaps.append(copy.deepcopy(net.state_dict()))
""",
    "style targets": """
feat = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
targets = []; t = torch.randn(1, 3, 8, 8)
for m in feat: t = m(t); targets.append(t)
targets = [u.detach() for u in targets]
img = torch.randn(1, 3, 8, 8, requires_grad=True); opt = torch.optim.Adam([img], 0.05)
for it in range(15):
    x, losses = img, []
    for m, u in zip(feat, targets): x = m(x); losses.append(F.mse_loss(x, u))
    loss = torch.stack(losses).sum(); opt.zero_grad(); loss.backward(); opt.step()
""",
    "tbptt": """
rnn = nn.LSTMCell(4, 8); head = nn.Linear(8, 1); opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], 0.01)
h = c = torch.zeros(2, 8); window = []; loss = 0
for t in range(64):
    h, c = rnn(torch.randn(2, 4), (h, c)); window.append((h, c))
    loss = loss + head(h).pow(2).mean()
    if (t + 1) % 8 == 0:
        opt.zero_grad(); loss.backward(); opt.step()
        h, c = h.detach(), c.detach(); loss = 0; window.clear()
""",
    "two step target": """
# n-step return: graphs of the last three steps wait for their targets
net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), 0.01); wait = []
for t in range(30):
    wait.append(net(torch.randn(1, 4)))
    if len(wait) > 3:
        v = wait.pop(0); loss = (v - wait[-1].detach()).pow(2).mean(); opt.zero_grad()
        loss.backward(); opt.step()
""",
    "wgan gp": """
G = nn.Linear(4, 6); D = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og = torch.optim.Adam(G.parameters(), 1e-3); od = torch.optim.Adam(D.parameters(), 1e-3)
fakes = []
for i in range(20):
    real = torch.randn(8, 6); fake = G(torch.randn(8, 4)).detach()
    a = torch.rand(8, 1); inter = (a * real + (1 - a) * fake).requires_grad_()
    g, = torch.autograd.grad(D(inter).sum(), inter, create_graph=True)
    ld = D(fake).mean() - D(real).mean() + 10 * (g.norm(2, 1) - 1).pow(2).mean()
    od.zero_grad(); ld.backward(); od.step()
    if i % 5 == 0:
        lg = -D(G(torch.randn(8, 4))).mean(); og.zero_grad(); lg.backward(); og.step()
    fakes.append(fake)
""",
}

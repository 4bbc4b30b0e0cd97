"""More of them: totals without a name, holders of the standard library, losses of epochs, caches that are full some day.

They begin with `PROJECT`; `# holds` marks the holding line."""

LEAKS_WITHOUT_NAMES = {
    "one statement fills several lists": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
columns = {"loss": [], "size": [], "step": []}
for step in range(12):
    out = net(torch.randn(8, 6)); loss = F.cross_entropy(out, torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    row = {"loss": loss, "size": out.abs().mean(), "step": step}
    for name, column in columns.items():
        column += [row[name]]  # holds
""",
    "array in an untracked dictionary": """
import numpy
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Curves:
    def __init__(self): self.cells = numpy.empty((2, 20), dtype=object)
    def set(self, run, step, value): self.cells[run, step] = value  # holds
curves = Curves()
print(sorted(vars(curves)))
for step in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    curves.set(1, step, loss)
""",
    "accumulate iter": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

sums = list(itertools.accumulate((step() for _ in range(12)), lambda a, b: a + b))  # holds
""",
    "critic only": """
G = nn.Linear(4, 6); D = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og = torch.optim.RMSprop(G.parameters(), 1e-3); od = torch.optim.RMSprop(D.parameters(), 1e-3)
class Log(dict):
    def add(self, k, v): self.setdefault(k, []).append(v)  # holds
log = Log()
for it in range(10):
    for _ in range(3):
        ld = D(G(torch.randn(8, 4)).detach()).mean() - D(torch.randn(8, 6)).mean()
        od.zero_grad(); ld.backward(); od.step()
    lg = -D(G(torch.randn(8, 4))).mean(); og.zero_grad(); lg.backward(); og.step()
    log.add("d", ld); log.add("g", lg.item())
""",
    "early stop": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

class EarlyStopping:
    def __init__(self): self.best = None; self.scores = []
    def __call__(self, val):
        self.scores.append(val)  # holds
        if self.best is None or val < self.best: self.best = val
stop = EarlyStopping()
for epoch in range(6):
    for _ in range(2): step()
    stop(F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,))))
""",
    "ema teacher params": """
# a running average of weights, made outside of no_grad
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
ema = {n: p.detach().clone() for n, p in net.named_parameters()}
for it in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    for n, p in net.named_parameters():
        ema[n] = 0.99 * ema[n] + 0.01 * p  # holds
""",
    "futures": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

from concurrent.futures import Future
done = []
for i in range(12):
    f = Future(); f.set_result(step())
    done.append(f)  # holds
""",
    "logger args": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

class Keep(logging.Handler):
    def __init__(self): super().__init__(); self.buffer = []
    def emit(self, record): self.buffer.append(record)  # holds
log = logging.getLogger("train"); log.setLevel("INFO"); log.addHandler(Keep()); log.propagate = False
for i in range(12):
    log.info("step %d loss %s", i, step())
""",
    "lru cache": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
@functools.lru_cache(maxsize=None)
def run(i):
    loss = F.cross_entropy(net(torch.full((8, 6), float(i))), torch.zeros(8, dtype=torch.long))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
for i in range(12):
    run(i)  # holds
""",
    "memory handler": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

import logging.handlers
log = logging.getLogger("t2"); log.setLevel("INFO"); log.propagate = False
log.addHandler(logging.handlers.MemoryHandler(10000))
for i in range(12):
    loss = step()
    log.info("loss %s", loss)  # holds
""",
    "nested epoch dict": """
net = Net(); opt = torch.optim.Adam(net.parameters())
class Tracker:
    def __init__(self): self.history = {"train": [], "val": []}
    def end_epoch(self, phase, value): self.history[phase].append(value)  # holds
tr = Tracker()
def run(phase, n):
    total = 0.0
    for _ in range(n):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        loss = F.cross_entropy(net(x), y)
        if phase == "train":
            opt.zero_grad(); loss.backward(); opt.step()
            total += loss.item()
        else:
            total += loss
    return total / n
for epoch in range(7):
    tr.end_epoch("train", run("train", 5)); tr.end_epoch("val", run("val", 3))
""",
    "norm stats": """
class RunningNorm(nn.Module):
    def __init__(self, d):
        super().__init__(); self.register_buffer("mean", torch.zeros(d)); self.lin = nn.Linear(d, d)
    def forward(self, x):
        h = self.lin(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.mean(0)  # holds
        return h - self.mean.detach()
net = nn.Sequential(RunningNorm(6), nn.Linear(6, 3)); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for it in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "reduce": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

total = functools.reduce(lambda acc, _: acc + step(), range(12), torch.zeros(()))  # holds
print(total)
""",
    "seven steps adam scaler": """
net = Net(); opt = torch.optim.AdamW(net.parameters()); sched = torch.optim.lr_scheduler.StepLR(opt, 2)
epoch_loss = torch.zeros(1)
for it in range(7):
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(net.parameters(), 1.0); opt.step(); sched.step()
    epoch_loss += loss  # holds
""",
    "sum gen": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

total = sum(step() for _ in range(12))  # holds
print(total.item() / 12)
""",
}

FULL_SOME_DAY = {
    "class prototypes": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1); proto = {}
for i in range(60):
    y = i % 10; out = net(torch.randn(8, 6)); proto[y] = out.mean(0)
    loss = out.pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
""",
    "darts bilevel": """
w = nn.Linear(6, 3); a = nn.Parameter(torch.zeros(3)); ow = torch.optim.SGD(w.parameters(), 0.1); oa = torch.optim.Adam([a], 1e-2)
for it in range(15):
    f = lambda: F.cross_entropy(w(torch.randn(8, 6)) * a.softmax(0), torch.randint(0, 3, (8,)))
    oa.zero_grad(); la = f(); la.backward(); oa.step()
    ow.zero_grad(); lw = f(); lw.backward(); ow.step()
    best = lw if it == 0 or lw < best else best
""",
    "delayed two epochs": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

# the loss of an epoch is looked at in the next one
prev = None
for epoch in range(10):
    losses = [step() for _ in range(4)]
    if prev is not None: print(torch.stack(prev).mean().item() - torch.stack(losses).mean().item())
    prev = losses
""",
    "first epochs only": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

first = []
for i in range(100):
    l = step()
    if i % 6 == 0 and len(first) < 5: first.append(l)
""",
    "gan history numbers": """
G = nn.Linear(4, 6); D = nn.Linear(6, 1); og = torch.optim.Adam(G.parameters()); od = torch.optim.Adam(D.parameters()); h = collections.defaultdict(list); pool = []
for i in range(30):
    fake = G(torch.randn(8, 4)); pool.append(fake.detach()); pool = pool[-5:]
    ld = D(random.choice(pool)).mean() - D(torch.randn(8, 6)).mean(); od.zero_grad(); ld.backward(); od.step()
    lg = -D(fake).mean(); og.zero_grad(); lg.backward(); og.step()
    h["d"].append(ld.item()); h["g"].append(lg.detach())
""",
    "growing window": """
cell = nn.GRUCell(4, 8); opt = torch.optim.SGD(cell.parameters(), 0.01)
h = torch.zeros(2, 8); n = 0
for w in range(2, 12):
    hs = []
    for t in range(w):
        h = cell(torch.randn(2, 4), h); hs.append(h)
    loss = torch.stack(hs).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step(); h = h.detach()
""",
    "listcomp epoch": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

for epoch in range(6):
    mean = torch.stack([step() for _ in range(7)]).mean().item()
""",
    "logged slow cleared": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

buf = []
for i in range(120):
    l = step()
    if i % 5 == 0: buf.append(l)
    if i % 40 == 39: print(torch.stack(buf).mean().item()); buf = []
""",
    "lstm stateful detach": """
rnn = nn.LSTM(4, 8, batch_first=True); head = nn.Linear(8, 1); opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
state = None; outs = []
for it in range(20):
    out, state = rnn(torch.randn(2, 5, 4), state); state = tuple(s.detach() for s in state)
    loss = head(out).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step(); outs.append(out.detach())
""",
    "mc rollout eval": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

for epoch in range(5):
    for _ in range(4): step()
    samples = torch.stack([net(torch.randn(8, 6)) for _ in range(6)])
    print(samples.var(0).mean().item())
""",
    "sum of chunks": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for it in range(8):
    loss = sum(F.cross_entropy(net(torch.randn(4, 6)), torch.randint(0, 3, (4,))) for _ in range(8)) / 8
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "topk": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

import heapq
top = []
for i in range(60):
    l = step()
    if len(top) < 4: heapq.heappush(top, (-l.item(), i, l))
    else: heapq.heappushpop(top, (-l.item(), i, l))
""",
}

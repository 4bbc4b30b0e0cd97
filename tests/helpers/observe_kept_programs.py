"""Programs that let graphs pile up, and programs that keep graphs on purpose. `# holds` marks the holding line."""

SETUP = """
import collections, functools, dataclasses
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def batch():
    return torch.randn(16, 4), torch.randn(16, 1)

def update(loss, **more):
    optimizer.zero_grad()
    loss.backward(**more)
    optimizer.step()

"""

LEAKS = {
    "running total": """
total = 0
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    total += loss  # holds
print(float(total) / 10)
""",
    "running total in a function": """
def epoch(count):
    running = 0.0
    for _ in range(count):
        x, y = batch()
        loss = nn.functional.mse_loss(model(x), y)
        update(loss)
        running = running + loss  # holds
    return running / count

print(epoch(12).item())
""",
    "attribute of a trainer": """
class Trainer:
    def __init__(self):
        self.losses = []

    def fit(self, steps):
        for _ in range(steps):
            x, y = batch()
            loss = (model(x) - y).abs().mean()
            update(loss)
            self.losses.append(loss)  # holds

Trainer().fit(10)
""",
    "dict of metrics": """
log = collections.defaultdict(list)
for step in range(10):
    x, y = batch()
    out = model(x)
    loss = (out - y).pow(2).mean()
    update(loss)
    log["mean"].append(out.mean())  # holds
""",
    "dict by step": """
outputs = {}
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    outputs[step] = loss  # holds
""",
    "records": """
@dataclasses.dataclass
class Record:
    step: int
    loss: object

records = []
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    records.append(Record(step, loss))  # holds
""",
    "meter": """
class Meter:
    def __init__(self):
        self.sum, self.count = 0, 0

    def add(self, value):
        self.sum = self.sum + value  # holds
        self.count += 1

meter = Meter()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    meter.add(loss)
print(float(meter.sum) / meter.count)
""",
    "closure": """
def make_logger():
    seen = []

    def log(value):
        seen.append(value)  # holds

    return log

log = make_logger()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    log(loss)
""",
    "exponential average": """
average = None
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    average = loss if average is None else 0.9 * average + 0.1 * loss  # holds
""",
    "evaluation with a graph": """
scores = []
for epoch in range(8):
    for _ in range(2):
        x, y = batch()
        update((model(x) - y).pow(2).mean())
    x, y = batch()
    scores.append((model(x) - y).abs().mean())  # holds
print(min(float(s) for s in scores))
""",
    "hidden state carried on": """
cell = nn.RNNCell(4, 8)
head = nn.Linear(8, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
h = torch.zeros(16, 8)
for step in range(10):
    x, y = batch()
    h = cell(x, h)  # holds
    loss = (head(h.detach()) - y).pow(2).mean()
    update(loss)
""",
    "hand-written update": """
w = torch.randn(4, 1, requires_grad=True)
kept = []
for step in range(10):
    x, y = batch()
    loss = (x @ w - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
    kept.append(loss)  # holds
""",
    "class attribute": """
class Log:
    values = []

for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    Log.values.append((step, loss))  # holds
""",
    "deque without a bound": """
window = collections.deque()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    window.append(loss)  # holds
""",
    "retained for later": """
graphs = []
for step in range(8):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss, retain_graph=True)
    graphs.append(loss)  # holds
""",
    "stacked each time": """
stack = torch.zeros(0)
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    stack = torch.cat([stack, loss.reshape(1)])  # holds
""",
    "linked records": """
@dataclasses.dataclass
class Record:
    loss: object
    previous: object

class Session:
    newest = None

    def step(self):
        x, y = batch()
        loss = (model(x) - y).pow(2).mean()
        update(loss)
        self.newest = Record(loss, self.newest)  # holds

session = Session()
for step in range(10):
    session.step()
""",
    "linked tuples": """
def train(steps):
    chain = None
    for step in range(steps):
        x, y = batch()
        loss = (model(x) - y).pow(2).mean()
        update(loss)
        chain = (loss, chain)  # holds
    return chain

train(10)
""",
    "sums of gradients with their graph": """
class Importance:
    def __init__(self, parameters):
        self.value = [torch.zeros_like(p) for p in parameters]

    def add(self, grads):
        self.value = [v + g.pow(2) for v, g in zip(self.value, grads)]  # holds

importance = Importance(list(model.parameters()))
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    update(loss + 0.01 * sum(g.pow(2).sum() for g in grads))
    importance.add(grads)
""",
    "log records": """
import logging

class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # holds

logger, handler = logging.getLogger("torchsan.test.kept"), Keep()
logger.setLevel(logging.INFO)
logger.propagate = False
logger.addHandler(handler)
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    logger.info("loss %s", loss)
logger.removeHandler(handler)
""",
    "hooks that pile up": """
weight = model[2].weight
def arm(loss):
    def shrink(grad):
        return grad / (1 + loss.detach())
    weight.register_hook(shrink)  # holds

for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    arm(loss)
    update(loss)
""",
    "array of objects": """
import numpy
cells = numpy.empty((2, 6), dtype=object)
for step in range(12):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    cells[step // 6, step % 6] = loss  # holds
""",
    "heap": """
import heapq, itertools
worst, count = [], itertools.count()
def remember(out, loss):
    heapq.heappush(worst, (-float(loss.detach()), next(count), out))  # holds

for step in range(10):
    x, y = batch()
    out = model(x)
    loss = (out - y).pow(2).mean()
    update(loss)
    remember(out, loss)
""",
    "queue": """
import queue
results = queue.Queue()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    results.put({"step": step, "loss": loss})  # holds
""",
    "suspended generators": """
def reporter(out):
    yield out.shape
    yield out.sum()

jobs = []
for step in range(10):
    x, y = batch()
    out = model(x)
    update((out - y).pow(2).mean())
    job = reporter(out)
    next(job)
    jobs.append(job)  # holds
""",
    "exceptions": """
def risky(out):
    raise ValueError("too large")

failures = []
for step in range(10):
    x, y = batch()
    out = model(x)
    update((out - y).pow(2).mean())
    try:
        risky(out)
    except ValueError as error:
        failures.append(error)  # holds
""",
    "partial objects": """
agenda = []
for step in range(10):
    x, y = batch()
    out = model(x)
    update((out - y).pow(2).mean())
    agenda.append(functools.partial(print, out))  # holds
""",
    "attributes of samples": """
class Sample:
    def __init__(self):
        self.x, self.seen = torch.randn(4), None

samples = [Sample() for _ in range(40)]
for step in range(12):
    chunk = samples[3 * step : 3 * step + 3]
    out = model(torch.stack([s.x for s in chunk]))
    update(out.pow(2).mean())
    for sample, value in zip(chunk, out.unbind()):
        sample.seen = value  # holds
""",
    "buckets": """
buckets = [[] for _ in range(4)]
for step in range(16):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    buckets[step % 4].append(loss)  # holds
""",
    "in-place total": """
total = torch.zeros(())
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    total.add_(loss)  # holds
""",
    "nonlocal chain": """
def tracker():
    newest = None

    def note(value):
        nonlocal newest
        newest = {"value": value, "before": newest}  # holds

    return note

note = tracker()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    note(loss)
""",
    "nodes": """
nodes = set()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    nodes.add(loss.grad_fn)  # holds
""",
    "attributes by step": """
class Results:
    pass

results = Results()
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    setattr(results, f"loss_{step}", loss)  # holds
""",
    "default argument": """
def improving(loss, seen=[]):
    seen.append(loss)  # holds
    return len(seen) < 2 or float(seen[-1].detach()) < float(seen[-2].detach())

for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    improving(loss)
""",
}

ON_PURPOSE = {
    "numbers": """
total, values = 0.0, []
for step in range(12):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    total += loss.item()
    values.append(loss.detach())
""",
    "windows": """
cell, head = nn.RNNCell(4, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
h = torch.zeros(16, 8)
for window in range(8):
    loss = 0
    for t in range(5):
        x, y = batch()
        h = cell(x, h)
        loss = loss + (head(h) - y).pow(2).mean()
    update(loss)
    h = h.detach()
""",
    "accumulated loss": """
for round in range(6):
    loss = 0
    for micro in range(8):
        x, y = batch()
        loss = loss + (model(x) - y).pow(2).mean() / 8
    update(loss)
""",
    "accumulated gradients": """
for step in range(24):
    x, y = batch()
    ((model(x) - y).pow(2).mean() / 8).backward()
    if step % 8 == 7:
        optimizer.step()
        optimizer.zero_grad()
""",
    "episodes": """
for episode in range(5):
    rewards, logs = [], []
    for t in range(12):
        x, y = batch()
        logs.append(model(x).sigmoid().mean())
        rewards.append(float(y.mean()))
    update(-sum(r * l for r, l in zip(rewards, logs)))
""",
    "meta-learning": """
for task in range(4):
    x, y = batch()
    fast = [p for p in model.parameters()]
    for inner in range(7):
        out = torch.tanh(x @ fast[0].t() + fast[1]) @ fast[2].t() + fast[3]
        grads = torch.autograd.grad((out - y).pow(2).mean(), fast, create_graph=True)
        fast = [p - 0.1 * g for p, g in zip(fast, grads)]
    out = torch.tanh(x @ fast[0].t() + fast[1]) @ fast[2].t() + fast[3]
    update((out - y).pow(2).mean())
""",
    "meta-learning, one task": """
x, y = batch()
fast = [p for p in model.parameters()]
for inner in range(9):
    out = torch.tanh(x @ fast[0].t() + fast[1]) @ fast[2].t() + fast[3]
    grads = torch.autograd.grad((out - y).pow(2).mean(), fast, create_graph=True)
    fast = [p - 0.1 * g for p, g in zip(fast, grads)]
update((torch.tanh(x @ fast[0].t() + fast[1]) @ fast[2].t() + fast[3] - y).pow(2).mean())
""",
    "bounded deque": """
recent = collections.deque(maxlen=5)
for step in range(24):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    recent.append(loss)
""",
    "list of one epoch": """
for epoch in range(4):
    losses = []
    for step in range(8):
        x, y = batch()
        loss = (model(x) - y).pow(2).mean()
        update(loss)
        losses.append(loss)
    print(sum(losses).item())
""",
    "growing lengths": """
cell = nn.RNNCell(4, 8)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
for length in range(2, 16):
    h = torch.zeros(16, 8)
    for t in range(length):
        h = cell(batch()[0], h)
    update(h.pow(2).mean())
""",
    "gradient penalty": """
for step in range(10):
    x, y = batch()
    x.requires_grad_()
    out = model(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    update((out - y).pow(2).mean() + (g.norm(dim=1) - 1).pow(2).mean())
""",
    "outputs of the last step": """
last = {}
for step in range(10):
    x, y = batch()
    last["out"] = model(x)
    update((last["out"] - y).pow(2).mean())
""",
    "ensemble": """
models = [nn.Linear(4, 1) for _ in range(8)]
optimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.01)
for step in range(10):
    x, y = batch()
    outs = [m(x) for m in models]
    update((torch.stack(outs).mean(0) - y).pow(2).mean())
""",
    "layers added": """
layers = nn.ModuleList()
for step in range(10):
    layers.append(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    x, _ = batch()
    for layer in layers:
        x = layer(x)
    update(x.pow(2).mean())
""",
    "no graph": """
seen = []
for step in range(12):
    x, y = batch()
    update((model(x) - y).pow(2).mean())
    with torch.no_grad():
        seen.append(model(x))
""",
    "one long sequence": """
cell = nn.RNNCell(4, 8)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
h, states = torch.zeros(16, 8), []
for t in range(40):
    h = cell(batch()[0], h)
    states.append(h)
update(torch.stack(states).pow(2).mean())
""",
    "chain of three": """
class Record:
    def __init__(self, loss, previous):
        self.loss, self.previous = loss, previous

newest = None
for step in range(16):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    newest = Record(loss, newest)
    if newest.previous and newest.previous.previous:
        newest.previous.previous.previous = None
""",
    "hooks that are removed": """
weight = model[2].weight
for step in range(12):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    handle = weight.register_hook(lambda grad, loss=loss: grad / (1 + loss.detach()))
    update(loss)
    handle.remove()
""",
    "weak references": """
import weakref
seen = weakref.WeakSet()
for step in range(12):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    seen.add(loss)
""",
    "bounded heap": """
import heapq, itertools
worst, count = [], itertools.count()
for step in range(20):
    x, y = batch()
    out = model(x)
    loss = (out - y).pow(2).mean()
    update(loss)
    entry = (float(loss.detach()), next(count), out)
    heapq.heappush(worst, entry) if len(worst) < 4 else heapq.heappushpop(worst, entry)
""",
    "the first five": """
first, last = [], None
for step in range(24):
    x, y = batch()
    last = (model(x) - y).pow(2).mean()
    update(last)
    if step < 5:
        first.append(last)
""",
    "ring": """
ring = [None] * 4
for step in range(20):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    ring[step % 4] = loss
""",
    "delayed backward": """
waiting = collections.deque()
for step in range(16):
    x, y = batch()
    waiting.append((model(x) - y).pow(2).mean())
    if len(waiting) > 3:
        optimizer.zero_grad()
        waiting.popleft().backward()
""",
    "read every third step": """
pending, curve = [], []
for step in range(18):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    pending.append(loss)
    if step % 3 == 2:
        curve += [float(one.detach()) for one in pending]
        pending.clear()
""",
    "records of numbers": """
import logging
records = []
class Keep(logging.Handler):
    def emit(self, record):
        records.append(record)

logger, handler = logging.getLogger("torchsan.test.numbers"), Keep()
logger.setLevel(logging.INFO)
logger.propagate = False
logger.addHandler(handler)
for step in range(12):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    logger.info("loss %s", loss.item())
logger.removeHandler(handler)
""",
    "array of numbers": """
import numpy
cells = numpy.empty(12, dtype=object)
for step in range(12):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    update(loss)
    cells[step] = loss.item()
""",
    "longer and longer": """
cell = nn.RNNCell(4, 8)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
for epoch in range(12):
    h, states = torch.zeros(16, 8), []
    for t in range(epoch + 2):
        h = cell(batch()[0], h)
        states.append(h)
    update(torch.stack(states).pow(2).mean())
""",
    "curvature products": """
parameters = list(model.parameters())
for step in range(10):
    x, y = batch()
    loss = (model(x) - y).pow(2).mean()
    grads = torch.autograd.grad(loss, parameters, create_graph=True)
    products = torch.autograd.grad(sum(g.sum() for g in grads), parameters, retain_graph=True)
    update(loss)
    last = [p.detach() for p in products]
""",
    "gradient cache in two passes": """
for step in range(8):
    chunks = [batch() for _ in range(4)]
    with torch.no_grad():
        outs = [model(x) for x, _ in chunks]
    seeds = [o.clone().requires_grad_() for o in outs]
    sum(s.pow(2).mean() for s in seeds).backward()
    optimizer.zero_grad()
    for (x, _), seed in zip(chunks, seeds):
        model(x).backward(seed.grad)
    optimizer.step()
""",
    "caches that are cleared": """
@functools.lru_cache(maxsize=None)
def embed(number):
    return model(torch.full((2, 4), float(number)))

for step in range(12):
    update((embed(step) - embed(step + 1)).pow(2).mean())
    embed.cache_clear()
""",
    "a model that grows": """
layers = [nn.Linear(4, 4)]
for stage in range(4):
    optimizer = torch.optim.SGD([p for l in layers for p in l.parameters()], lr=0.01)
    for step in range(4):
        x, _ = batch()
        for layer in layers:
            x = torch.tanh(layer(x))
        update(x.pow(2).mean())
    layers.append(nn.Linear(4, 4))
""",
}

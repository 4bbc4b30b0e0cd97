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
}

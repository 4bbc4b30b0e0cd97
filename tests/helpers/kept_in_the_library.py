"""Graphs that the standard library holds, and values that are made from their former selves by several lines.

They begin with `PROJECT`; `# holds` marks the holding line."""

STEP = """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = F.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
"""

LEAKS_IN_THE_LIBRARY = {
    "gated by hand": """
u, g = nn.Linear(6, 8), nn.Linear(8, 8); head = nn.Linear(8, 3); opt = torch.optim.SGD(head.parameters(), lr=0.01)
h = torch.zeros(4, 8)
for i in range(12):
    gate = torch.sigmoid(g(h))
    h = gate * h + torch.tanh(u(torch.randn(4, 6)))  # holds
    loss = head(h.detach()).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "two states": """
a, b = nn.Linear(6, 6), nn.Linear(6, 6); head = nn.Linear(6, 3); opt = torch.optim.SGD(head.parameters(), lr=0.01)
x = torch.zeros(4, 6); y = torch.zeros(4, 6)
for i in range(12):
    y = torch.tanh(a(x))
    x = torch.tanh(b(y)) + torch.randn(4, 6)  # holds
    loss = head(x.detach()).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "perturbation carried on": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.01)
delta = torch.zeros(8, 6, requires_grad=True)
data = torch.randn(8, 6)
for i in range(12):
    loss = F.cross_entropy(net(data + delta.detach()), torch.zeros(8, dtype=torch.long))
    opt.zero_grad(); loss.backward(); opt.step()
    score = net(data + delta)
    delta = delta + 0.1 * score.mean(1, keepdim=True)  # holds
""",
    "asyncio queue nobody empties": STEP
    + """
import asyncio
async def produce(queue):
    for i in range(12):
        await queue.put(step())  # holds
async def main():
    queue = asyncio.Queue()
    await produce(queue)
    return sum(float(queue.get_nowait()) for _ in range(queue.qsize()))
print(asyncio.run(main()))
""",
    "list in a context variable": STEP
    + """
import contextvars
trail = contextvars.ContextVar("trail")
trail.set([])
def note(value):
    trail.get().append(value)  # holds
for i in range(12): note(step())
print(len(trail.get()))
""",
    "tee of which one side waits": STEP
    + """
def losses():
    for i in range(12): yield step()
now, later = itertools.tee(losses())
for value in now:  # holds
    print(float(value))
print(sum(float(v) for v in later))
""",
    "child maps": STEP
    + """
scope = collections.ChainMap()
for i in range(12):
    scope = scope.new_child({f"loss{i}": step()})  # holds
print(len(scope.maps))
""",
    "callbacks of an exit stack": STEP
    + """
def report(value): print(float(value))
with contextlib.ExitStack() as stack:
    for i in range(12):
        stack.callback(report, step())  # holds
""",
    "totals by class": STEP
    + """
totals = collections.Counter()
for i in range(14):
    totals["odd" if i % 2 else "even"] += step()  # holds
print({k: float(v) for k, v in totals.items()})
""",
}

LET_GO_IN_THE_LIBRARY = {
    "rewards that come late": """
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.01)
pending = {}
for i in range(24):
    pending[i] = torch.log_softmax(net(torch.randn(1, 6)), -1)[0, 0]
    if i >= 5:
        loss = -pending.pop(i - 5) * random.random()
        opt.zero_grad(); loss.backward()
        for p in net.parameters(): p.grad.clamp_(-1, 1)
""",
    "cut every fifth step": """
cell = nn.RNNCell(6, 8); head = nn.Linear(8, 3); opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
h = torch.zeros(4, 8); losses = []
for i in range(30):
    h = cell(torch.randn(4, 6), h)
    losses.append(head(h).pow(2).mean())
    if i % 5 == 4:
        opt.zero_grad(); torch.stack(losses).mean().backward(); opt.step()
        h = h.detach(); del losses[:]
""",
    "asyncio queue that is emptied": STEP
    + """
import asyncio
async def main():
    queue = asyncio.Queue(); total = 0.0
    async def consume():
        nonlocal total
        while True: total += float(await queue.get())
    task = asyncio.create_task(consume())
    for i in range(14):
        await queue.put(step()); await asyncio.sleep(0)
    task.cancel()
    return total
print(asyncio.run(main()))
""",
    "exit stack of each epoch": STEP
    + """
def report(value): float(value)
for epoch in range(4):
    with contextlib.ExitStack() as stack:
        for i in range(4): stack.callback(report, step())
""",
    "table that each epoch fills anew": STEP
    + """
table = {}
for epoch in range(3):
    for i in range(6): table[i] = step()
print(len(table))
""",
}

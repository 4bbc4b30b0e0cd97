"""Programs with torch.compile: hazards with their marked lines, and programs that train right.

`# mutates` and `# saves` end the lines that must be named; BACKEND stands for the backend of torch.compile. Most are
rewritten from public reports and follow the way in which such code is written.
"""

SETUP = """
import torch
import torch.nn.functional as F
from torch import nn
BACKEND = {backend!r}
torch.manual_seed(0)
"""

# -- an in-place write inside the region to a value that it saves: torch raises while it compiles ---------------------

HAZARDS = {}

HAZARDS["sigmoid_scaled_in_forward"] = """
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        gate = torch.sigmoid(self.proj(x))  # saves
        gate *= 0.5  # mutates
        return (gate * x).sum()

model = torch.compile(Gate(), backend=BACKEND)
model(torch.randn(2, 4)).backward()
"""

HAZARDS["helper_normalises_in_place"] = """
def normalise(t):
    t /= t.sum(-1, keepdim=True)  # mutates
    return t

@torch.compile(backend=BACKEND)
def attend(q, k, v):
    weights = (q @ k.t()).exp()  # saves
    return normalise(weights) @ v

q = torch.randn(3, 4, requires_grad=True)
attend(q, torch.randn(5, 4), torch.randn(5, 2)).sum().backward()
"""

HAZARDS["indexed_assignment_in_loop"] = """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(3, 3)

    def forward(self, x):
        out = torch.zeros(x.shape[0], 3)
        for t in range(1, x.shape[0]):
            out[t] = torch.tanh(self.cell(out[t - 1]) + x[t])  # mutates
        return out

model = torch.compile(Recurrent(), backend=BACKEND)
model(torch.randn(4, 3)).sum().backward()
"""

HAZARDS["inplace_layer_after_tanh"] = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = torch.tanh(self.lin(x))  # saves
        return self.act(h).sum()  # mutates

torch.compile(Block(), backend=BACKEND, fullgraph=True)(torch.randn(2, 4)).backward()
"""

HAZARDS["masked_assignment_after_exp"] = """
@torch.compile(backend=BACKEND, dynamic=True)
def loss_of(logits, mask):
    p = logits.exp()  # saves
    p[mask] = 0.0  # mutates
    return p.sum()

logits = torch.randn(6, requires_grad=True)
loss_of(logits, torch.arange(6) > 3).backward()
"""

HAZARDS["write_to_slice_of_saved"] = """
@torch.compile(backend=BACKEND)
def step(x):
    y = torch.sqrt(x)  # saves
    y[1:].mul_(10)  # mutates
    return y.sum()

x = torch.rand(4, requires_grad=True)
step(x * 1).backward()
"""

HAZARDS["residual_added_to_softmax"] = """
class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 4)

    def forward(self, x):
        p = F.softmax(self.scores(x), dim=-1)  # saves
        p += x  # mutates
        return p.pow(2).mean()

model = torch.compile(Mixer(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(3, 4)).backward()
"""

# -- a value that a region saved, written by code outside ------------------------------------------------------------

HAZARDS["caller_scales_output"] = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.body(x))  # saves

encoder = torch.compile(Encoder(), backend=BACKEND)
code = encoder(torch.randn(2, 4))
code += 0.1  # mutates
code.sum().backward()
"""

HAZARDS["weights_clipped_before_backward"] = """
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
score = torch.compile(critic, backend=BACKEND)
x = torch.randn(3, 4, requires_grad=True)
loss = score(x).mean()
with torch.no_grad():
    for p in critic.parameters():
        p.clamp_(-0.01, 0.01)  # mutates
loss.backward()
"""

HAZARDS["optimizer_between"] = """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))  # saves

critic, actor = Critic(), nn.Linear(2, 3)
judge = torch.compile(critic, backend=BACKEND)
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
state = torch.randn(4, 2)
actor_loss = -judge(actor(state)).mean()
critic_loss = judge(torch.randn(4, 3)).pow(2).mean()
critic_loss.backward()
opt.step()  # mutates
actor_loss.backward()
"""

HAZARDS["input_buffer_refilled"] = """
@torch.compile(backend=BACKEND)
def energy(x, w):
    return (x * w).pow(2).sum()  # saves

w = torch.randn(3, requires_grad=True)
buffer = torch.zeros(3)
losses = []
for step in range(2):
    buffer.copy_(torch.randn(3))  # mutates
    losses.append(energy(buffer, w))
sum(losses).backward()
"""

HAZARDS["output_list_written_by_caller"] = """
@torch.compile(backend=BACKEND)
def heads(x, w):
    left = torch.sigmoid(x @ w)  # saves
    return left, left.sum()

def postprocess(t):
    t.clamp_(0.2, 0.8)  # mutates
    return t

w = torch.randn(3, 3, requires_grad=True)
left, total = heads(torch.randn(2, 3), w)
(postprocess(left).sum() + total).backward()
"""

# -- writes by a region to what it was given --------------------------------------------------------------------------

HAZARDS["region_writes_saved_activation"] = """
@torch.compile(backend=BACKEND)
def drop(h, mask):
    h.masked_fill_(mask, 0.0)  # mutates
    return h * 2

layer = nn.Linear(4, 4)
h = torch.sigmoid(layer(torch.randn(2, 4)))  # saves
drop(h, torch.tensor([True, False, False, True])).sum().backward()
"""

HAZARDS["region_writes_parameter"] = """
layer = nn.Linear(3, 3)

@torch.compile(backend=BACKEND)
def average(w, other):
    with torch.no_grad():
        w.lerp_(other, 0.5)  # mutates

x = torch.randn(2, 3, requires_grad=True)
loss = layer(x).pow(2).sum()  # saves
average(layer.weight, torch.zeros(3, 3))
loss.backward()
"""

HAZARDS["region_writes_buffer_saved_before"] = """
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)  # mutates
        return self.lin(x) * self.mean  # saves

memory = Memory()
step = torch.compile(memory, backend=BACKEND)
first = step(torch.randn(2, 3))
second = step(torch.randn(2, 3))
(first.sum() + second.sum()).backward()
"""

HAZARDS["region_writes_global"] = """
SCALE = torch.ones(3)

@torch.compile(backend=BACKEND)
def warm(step):
    SCALE.mul_(0.5)  # mutates
    return SCALE.sum()

w = torch.randn(3, requires_grad=True)
loss = (w * SCALE).sum()  # saves
warm(1)
loss.backward()
"""

HAZARDS["compiled_optimizer_between"] = """
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)

@torch.compile(backend=BACKEND)
def update():
    opt.step()  # mutates

x = torch.randn(2, 3)
first = net(x).pow(2).mean()
second = net(x).abs().mean()
first.backward(retain_graph=True)
update()
second.backward()
"""

HAZARDS["second_region_writes_first_ones_output"] = """
@torch.compile(backend=BACKEND)
def encode(x, w):
    return torch.exp(x @ w)  # saves

@torch.compile(backend=BACKEND)
def rescale(t):
    t.sub_(t.mean())  # mutates
    return t.square()

w = torch.randn(3, 3, requires_grad=True)
rescale(encode(torch.randn(2, 3), w)).sum().backward()
"""

# -- graph breaks, disabled code, several regions ---------------------------------------------------------------------

HAZARDS["write_after_graph_break"] = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        h = torch.sigmoid(self.lin(x))  # saves
        torch._dynamo.graph_break()
        h += x  # mutates
        return h.sum()

torch.compile(Layer(), backend=BACKEND)(torch.randn(2, 4)).backward()
"""

HAZARDS["write_after_print"] = """
def forward(x, w):
    h = torch.tanh(x @ w)  # saves
    print("norm", h.norm().item())
    h.mul_(2)  # mutates
    print("scaled")
    return h.sum()

w = torch.randn(4, 4, requires_grad=True)
step = torch.compile(forward, backend=BACKEND)
step(torch.randn(2, 4), w).backward()
"""

HAZARDS["write_in_disabled_function"] = """
@torch.compiler.disable
def clip(t):
    t.clamp_(max=0.5)  # mutates
    return t

@torch.compile(backend=BACKEND)
def forward(x, w):
    h = torch.sigmoid(x @ w)  # saves
    h = clip(h)
    return h.sum()

w = torch.randn(4, 4, requires_grad=True)
forward(torch.randn(2, 4), w).backward()
"""

HAZARDS["write_between_two_breaks"] = """
def forward(x, w):
    h = torch.exp(x @ w)  # saves
    if h.sum().item() > 1e9:
        return h
    h[0] = 0.0  # mutates
    if h.max().item() > 1e9:
        return h
    return h * 3

w = torch.randn(3, 3, requires_grad=True)
torch.compile(forward, backend=BACKEND)(torch.randn(2, 3), w).sum().backward()
"""

HAZARDS["nested_compile"] = """
@torch.compile(backend=BACKEND)
def inner(t):
    t.add_(1.0)  # mutates
    return t * 2

@torch.compile(backend=BACKEND)
def outer(x, w):
    h = torch.sigmoid(x @ w)  # saves
    torch._dynamo.graph_break()
    return inner(h)

w = torch.randn(3, 3, requires_grad=True)
outer(torch.randn(2, 3), w).sum().backward()
"""

HAZARDS["recompiled_for_new_shape"] = """
@torch.compile(backend=BACKEND)
def act(x, w):
    return torch.tanh(x @ w)  # saves

w = torch.randn(4, 4, requires_grad=True)
for n in (2, 3, 5):
    out = act(torch.randn(n, 4), w)
    if n < 5:
        out.sum().backward()
out.relu_()  # mutates
out.sum().backward()
"""

HAZARDS["mark_dynamic_region_writes_input"] = """
@torch.compile(backend=BACKEND)
def shift(h):
    h -= h.mean(0)  # mutates
    return h.pow(2).sum()

w = torch.randn(4, 4, requires_grad=True)
x = torch.randn(6, 4)
h = torch.exp(x @ w)  # saves
torch._dynamo.mark_dynamic(h, 0)
shift(h).backward()
"""

HAZARDS["carried_hidden_state_of_region"] = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(3, 3)

    def forward(self, x, h):
        h.mul_(0.5)  # mutates
        return torch.tanh(self.w(x) + h)  # saves

cell = torch.compile(Cell(), backend=BACKEND)
h = torch.zeros(2, 3)
for x in torch.randn(3, 2, 3):
    h = cell(x, h)
h.sum().backward()
"""

# -- errors at once -----------------------------------------------------------------------------------------------------

HAZARDS["leaf_written_in_region"] = """
@torch.compile(backend=BACKEND)
def sgd(w, g):
    w -= 0.1 * g  # mutates
    return w

w = torch.randn(3, requires_grad=True)
sgd(w, torch.ones(3))
"""

HAZARDS["view_of_leaf_written_in_region"] = """
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 3))

    def forward(self, rows):
        self.table[0] = 0.0  # mutates
        return self.table[rows].sum()

torch.compile(Table(), backend=BACKEND)(torch.tensor([1, 2]))
"""

# -- silent -----------------------------------------------------------------------------------------------------------

HAZARDS["region_writes_callers_input"] = """
class Normaliser(nn.Module):
    def forward(self, batch):
        batch -= batch.mean(0)  # mutates
        return batch / 2

def evaluate(model, batch):
    out = model(batch)
    return (out - batch).abs().mean()

model = torch.compile(Normaliser(), backend=BACKEND)
for _ in range(2):
    print(evaluate(model, torch.randn(4, 3)))
"""

HAZARDS["data_written_behind_region"] = """
@torch.compile(backend=BACKEND)
def act(x, w):
    return torch.tanh(x @ w)  # saves

w = torch.randn(3, 3, requires_grad=True)
y = act(torch.randn(2, 3), w)
y.data.mul_(0.5)  # mutates
y.sum().backward()
"""

HAZARDS["fused_step_between"] = """
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
judge = torch.compile(net, backend=BACKEND)
x = torch.randn(4, 3)
first = judge(x).pow(2).mean()
second = judge(x).abs().mean()
first.backward(retain_graph=True)
opt.step()  # mutates
second.backward()
"""

HAZARDS["default_written_by_region"] = """
@torch.compile(backend=BACKEND)
def smooth(frame, rate: float, level=torch.zeros(5)):
    rise = torch.relu(frame - level)
    level.lerp_(frame, rate)  # mutates
    return rise.sum()

with torch.no_grad():
    for recording in torch.rand(3, 4, 5).unbind():
        print([smooth(frame, 0.3).item() for frame in recording])
"""

CLEAN = {}

CLEAN["plain_training"] = """
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 1))
step = torch.compile(net, backend=BACKEND)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(3):
    loss = step(torch.randn(6, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""

CLEAN["buffer_updates_and_breaks"] = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.seen += 1
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        h = self.lin(x)
        torch._dynamo.graph_break()
        h += 0.1
        return torch.tanh(h)

cell = Cell()
step = torch.compile(cell, backend=BACKEND)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
for _ in range(3):
    loss = step(torch.randn(2, 4)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(cell.seen, cell.mean)
"""

CLEAN["key_value_cache"] = """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(6, 4))

    def forward(self, x, position):
        self.cache[position] = self.k(x)
        return torch.softmax(self.q(x) @ self.cache.t(), -1) @ self.cache

decoder = torch.compile(Decoder(), backend=BACKEND)
with torch.no_grad():
    x = torch.randn(4)
    for t in range(4):
        x = decoder(x, torch.tensor(t))
print(x)
"""

CLEAN["compiled_optimizer"] = """
net = nn.Linear(3, 1)
opt = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.01))

@torch.compile(backend=BACKEND)
def update():
    opt.step()

for _ in range(4):
    loss = net(torch.randn(5, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    update()
print(loss.item())
"""

CLEAN["recompiles_and_dynamic_shapes"] = """
@torch.compile(backend=BACKEND)
def f(x, w):
    h = x @ w
    h.relu_()
    return h.sum()

w = torch.randn(4, 4, requires_grad=True)
for n in (2, 3, 4, 7):
    f(torch.randn(n, 4), w).backward()
print(w.grad)
"""

CLEAN["write_to_unsaved_output"] = """
@torch.compile(backend=BACKEND)
def f(x, w):
    return x @ w

w = torch.randn(4, 4, requires_grad=True)
y = f(torch.randn(2, 4), w)
y += 1
y.mul_(2)
y.sum().backward()
print(w.grad)
"""

CLEAN["average_of_weights"] = """
import copy
net = nn.Linear(3, 3)
shadow = copy.deepcopy(net)
step = torch.compile(net, backend=BACKEND)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

@torch.compile(backend=BACKEND)
def average():
    with torch.no_grad():
        for a, b in zip(shadow.parameters(), net.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)

for _ in range(3):
    loss = step(torch.randn(4, 3)).pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    average()
print(shadow.weight)
"""

CLEAN["disabled_logging"] = """
history = []

@torch.compiler.disable
def log(t):
    copy = t.detach().clone()
    copy.mul_(100)
    history.append(copy.mean().item())

@torch.compile(backend=BACKEND)
def f(x, w):
    h = torch.sigmoid(x @ w)
    log(h)
    return (h * 2).sum()

w = torch.randn(4, 4, requires_grad=True)
for _ in range(2):
    f(torch.randn(2, 4), w).backward()
print(history)
"""

CLEAN["in_place_on_fresh_memory"] = """
class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:, ::2] = torch.sin(x[:, ::2])
        out[:, 1::2] = torch.cos(x[:, 1::2])
        out.add_(self.lin(x))
        return out

model = torch.compile(Positions(), backend=BACKEND)
model(torch.randn(3, 4)).sum().backward()
"""

CLEAN["caught_failure_falls_back"] = """
def f(x):
    h = torch.sigmoid(x)
    h += 1
    return h.sum()

x = torch.randn(3, requires_grad=True)
try:
    torch.compile(f, backend=BACKEND)(x)
except Exception:
    torch.sigmoid(x).sum().backward()
print(x.grad)
"""

CLEAN["counter_and_average_in_checkpointed_regions"] = """
from torch.utils.checkpoint import checkpoint

class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x):
        with torch.no_grad():
            self.center.mul_(0.9).add_(0.1 * x.mean(0))
        return F.silu(self.linear(x - x.mean(0)))

net = nn.ModuleList(Centered() for _ in range(2))
calls = [torch.compile(block, backend=BACKEND) for block in net]
for i in range(3):
    x = torch.randn(8, 4)
    for call in calls:
        x = checkpoint(call, x, use_reentrant=False)
    x.pow(2).mean().backward()
print(net[0].center)
"""

CLEAN["gradient_accumulation_and_checkpoint"] = """
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = checkpoint(lambda t: torch.tanh(self.a(t)), x, use_reentrant=False)
        return self.b(h)

net = Net()
step = torch.compile(net, backend=BACKEND)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    (step(torch.randn(3, 4)).pow(2).mean() / 2).backward()
    if i % 2:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
print(net.a.weight)
"""

CLEAN["dropout_and_random_draws"] = """
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        noise = torch.randn_like(x)
        return F.dropout(self.lin(x + noise), 0.5, self.training)

model = torch.compile(Noisy(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
print(torch.rand(2))
"""

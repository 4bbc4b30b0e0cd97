"""Further programs with torch.compile: regions that write what others hold, past autograd, or before their backward.

Marked as in `compiled_programs`; each hazard has a twin among the clean ones that does the same on memory of its own.
"""

HAZARDS, CLEAN = {}, {}

# -- what a region writes has other holders -----------------------------------------------------------------------------

_COLLECT = """
@torch.compile(backend=BACKEND)
def update(state, drive):
    drive = torch.tanh(drive + state.mean())
    state.mul_(0.6)  # mutates
    state.add_(drive, alpha=0.4)
    return state

def collect(signal):
    state, rows = torch.zeros(1, 5), []
    for t, value in enumerate(signal):
        state = update(state, value)
        if t >= 10:
            rows.append(KEPT)
    return torch.cat(rows)

with torch.no_grad():
    print(collect(torch.randn(60, 1)).std(0))
"""
HAZARDS["state_of_region_kept_in_a_list"] = _COLLECT.replace("KEPT", "state")
CLEAN["state_of_region_copied_into_a_list"] = _COLLECT.replace("KEPT", "state.clone()")

_TABLE = """
import functools

TABLE = torch.arange(1.0, 5.0)

def accelerated(**options):
    def wrap(fn):
        return functools.wraps(fn)(torch.compile(fn, **options))
    return wrap

@accelerated(backend=BACKEND, dynamic=False)
def rotate(x, stretch: float):
    freq = TAKEN
    freq /= stretch  # mutates
    return x * freq.cos()

with torch.no_grad():
    for _ in range(4):
        print(rotate(torch.ones(4), 2.0).sum())
"""
HAZARDS["table_divided_by_decorated_region"] = _TABLE.replace("TAKEN", "TABLE")
CLEAN["copy_of_table_divided_by_decorated_region"] = _TABLE.replace("TAKEN", "TABLE.clone()")

_RESUMED = """
class Scaler(nn.Module):
    def forward(self, batch):
        peak = batch.abs().max().item()
        batch = TAKEN
        batch /= peak  # mutates
        return batch * 2

def evaluate(model, batch):
    out = model(batch)
    return (out - batch).abs().mean()

model = Scaler()
model.compile(backend=BACKEND)
for _ in range(3):
    print(evaluate(model, torch.randn(4, 3)))
"""
CLEAN["copy_of_callers_input_written_after_a_break"] = _RESUMED.replace("TAKEN", "batch.clone()")

_INPUT = """
class Centre(nn.Module):
    def forward(self, batch):
        batch HOW  # mutates
        return batch / 2

def evaluate(model, batch):
    out = model(batch)
    return (out - batch).abs().mean()

model = Centre()
model.compile(backend=BACKEND)
for size in (4, 6, 9):
    print(evaluate(model, torch.randn(size, 3)))
"""
HAZARDS["callers_input_written_at_several_sizes"] = _INPUT.replace("HOW", "-= batch.mean(0)")
CLEAN["callers_input_left_alone_at_several_sizes"] = _INPUT.replace("HOW", "= batch - batch.mean(0)")

# -- past autograd ------------------------------------------------------------------------------------------------------

_TIED = """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.atoms = nn.Parameter(torch.randn(5, 3))

    def rescale(self):
        self.atoms.data.div_(self.atoms.data.norm(dim=1, keepdim=True))  # mutates

    def forward(self, x):
        BEFORE
        code = (x * self.scale) @ self.atoms.t()  # saves
        AFTER
        return code @ self.atoms

model = Tied()
fast = torch.compile(model, backend=BACKEND, fullgraph=True)
for _ in range(2):
    fast(torch.randn(4, 3)).pow(2).mean().backward()
"""
HAZARDS["parameter_rescaled_between_two_uses"] = _TIED.replace("BEFORE", "pass").replace("AFTER", "self.rescale()")
CLEAN["parameter_rescaled_before_its_uses"] = _TIED.replace("BEFORE", "self.rescale()").replace("AFTER", "pass")
CLEAN["data_clamped_where_nothing_is_out_of_bounds"] = _TIED.replace("BEFORE", "pass").replace(
    "AFTER", "self.atoms.data.clamp_(-100, 100)"
)

# -- torch 2.13 computes some updates of buffers again in backward, from the updated buffer ------------------------------

_BUFFER = """
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("level", torch.rand(4) + 1)

    def forward(self, x):
        self.level.mul_(1.5)  # mutates
        return ((x * self.scale) * USED).sin()

gate = Gate()
model = torch.compile(gate, backend=BACKEND)
model(torch.randn(3, 4)).sum().backward()
print(gate.scale.grad)
"""
HAZARDS["buffer_is_updated_again_in_backward"] = _BUFFER.replace("USED", "self.level")
CLEAN["buffer_updated_for_the_next_call"] = _BUFFER.replace("USED", "2.0")

# -- other ways to compile ----------------------------------------------------------------------------------------------

_AUTOGRAD = """
import torch._dynamo
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
fast = torch.compile(net, backend=BACKEND)
hidden = torch.compile(lambda t: torch.exp(t), backend=BACKEND)  # saves
opt = torch.optim.SGD(net.parameters(), lr=0.1)
with torch._dynamo.config.patch(compiled_autograd=True):
    for _ in range(2):
        y = hidden(fast(torch.randn(4, 3)))
        WRITE
        torch.compile(lambda: y.mean().backward(), backend=BACKEND)()
        opt.step()
        opt.zero_grad()
print(net[0].weight.sum())
"""
CLEAN["compiled_autograd"] = _AUTOGRAD.replace("WRITE", "pass")

_ISLAND = """
HISTORY = []

@torch.compiler.disable
def record(h):
    HISTORY.append(KEPT)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x, state):
        state.lerp_(self.lin(x).detach().mean(0), 0.5)  # mutates
        record(state)
        return self.lin(x).tanh().sum()

net = Net()
fast = torch.compile(net, backend=BACKEND)
state = torch.zeros(4)
for _ in range(12):
    fast(torch.randn(2, 4), state).backward()
print(torch.stack(HISTORY).std(0))
"""
HAZARDS["state_kept_by_disabled_function"] = _ISLAND.replace("KEPT", "h")
CLEAN["state_copied_by_disabled_function"] = _ISLAND.replace("KEPT", "h.clone()")

CLEAN["averages_of_batches_in_a_full_graph"] = """
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.after = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        with torch.no_grad():
            self.seen += 1
            self.mean.lerp_(x.mean(0), 0.1)
        return self.after((x - x.mean(0)) * self.weight)

norm = Norm()
fast = torch.compile(norm, backend=BACKEND, fullgraph=True)
for _ in range(3):
    fast(torch.randn(6, 4)).sum().backward()
print(norm.mean, norm.seen)
"""

CLEAN["ring_of_slots_written_in_turn"] = """
@torch.compile(backend=BACKEND, dynamic=False)
def put(ring, at: int, value):
    ring[at].copy_(value)
    return ring[at]

ring = torch.zeros(3, 4)
for step in range(9):
    kept = [put(ring, at, torch.randn(4)) for at in range(3)]
    print(torch.stack(kept).sum())
"""

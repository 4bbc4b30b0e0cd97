"""Where a write may stand in a compiled program, and in what program it is a mistake: every place with every program.

Each place defines `change`, a compiled function that writes its argument at the line marked `# mutates`. Each program
uses it. What is told of a program compiled must be what is told of it in eager.
"""

from __future__ import annotations

SETUP = """
import contextlib
import torch
import torch.nn.functional as F
from dataclasses import dataclass
from torch import nn
from torch.utils.checkpoint import checkpoint
BACKEND = {backend!r}
torch.manual_seed(0)
"""

PLACES: dict[str, str] = {}
PROGRAMS: dict[str, str] = {}

_STRAIGHT = """
@torch.compile(backend=BACKEND)
def change(t):
    {write}  # mutates
    return t.sum()
"""
_WRITES = {
    "method": "t.mul_(0.5)",
    "augmented": "t *= 0.5",
    "index": "t[0] = t[0] * 0.5",
    "index_augmented": "t[0] *= 0.5",
    "of_a_view": "t.t().mul_(0.5)",
    "copied_into": "t.copy_(t * 0.5)",
    "data": "t.data.mul_(0.5)",
    "detached": "t.detach().mul_(0.5)",
    "out": "torch.mul(t, 0.5, out=t)",
    "function": "F.leaky_relu(t, 0.5, inplace=True)",
    "function_with_dash": "F.elu_(t)",
    "foreach": "torch._foreach_mul_([t], 0.5)",
    "masked": "t[t > 0.1] = 0.25",
    "chain": "t.mul_(0.5).add_(0.25)",
    "scatter": "t.index_add_(0, torch.tensor([0]), torch.ones(1, 4))",
    "clamped": "t.clamp_(max=0.4)",
    "lambda": "(lambda v: v.mul_(0.5))(t)",
    "operator": "torch.Tensor.mul_(t, 0.5)",
}
for _name, _write in _WRITES.items():
    PLACES[_name] = _STRAIGHT.format(write=_write)

PLACES["no_grad"] = """
@torch.compile(backend=BACKEND)
def change(t):
    with torch.no_grad():
        t.mul_(0.5)  # mutates
    return t.sum()
"""
PLACES["no_grad_decorator"] = """
@torch.no_grad()
def halve(v):
    v.mul_(0.5)  # mutates

@torch.compile(backend=BACKEND)
def change(t):
    halve(t)
    return t.sum()
"""
PLACES["helper"] = """
def halve(v):
    v.mul_(0.5)  # mutates
    return v

@torch.compile(backend=BACKEND)
def change(t):
    return halve(t).sum()
"""
PLACES["helper_of_helper"] = """
def halve(v, by):
    v *= by  # mutates

def prepare(u):
    halve(u, by=0.5)
    return u + 1

@torch.compile(backend=BACKEND)
def change(t):
    return prepare(t).sum()
"""
PLACES["fullgraph_dynamic"] = """
@torch.compile(backend=BACKEND, fullgraph=True, dynamic=True)
def change(t):
    t.mul_(0.5)  # mutates
    return t.sum()
"""
PLACES["submodule"] = """
class Halve(nn.Module):
    def forward(self, v):
        v.mul_(0.5)  # mutates
        return v

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(Halve())

    def forward(self, t):
        return self.inner(t).sum()

change = torch.compile(Outer(), backend=BACKEND)
"""
PLACES["module_compile"] = """
class Halve(nn.Module):
    def forward(self, v):
        v.mul_(0.5)  # mutates
        return v.sum()

change = Halve()
change.compile(backend=BACKEND)
"""
PLACES["torch_layer"] = """
class Act(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.LeakyReLU(0.5, inplace=True)

    def forward(self, t):
        return self.act(t - 0).sum() + self.act(t).sum()  # mutates

change = torch.compile(Act(), backend=BACKEND)
"""
PLACES["method_of_object"] = """
class Scaler:
    def __init__(self, by):
        self.by = by

    def apply(self, v):
        v.mul_(self.by)  # mutates
        return v

scaler = Scaler(0.5)

@torch.compile(backend=BACKEND)
def change(t):
    return scaler.apply(t).sum()
"""
PLACES["compiled_method"] = """
class Scaler:
    def __init__(self, by):
        self.by = by

    @torch.compile(backend=BACKEND)
    def __call__(self, t):
        t.mul_(self.by)  # mutates
        return t.sum()

change = Scaler(0.5)
"""
PLACES["custom_function"] = """
class Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        v.mul_(0.5)  # mutates
        ctx.mark_dirty(v)
        return v

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5

@torch.compile(backend=BACKEND)
def change(t):
    return Halve.apply(t).sum()
"""
PLACES["custom_function_unmarked"] = """
class Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        out = v.mul_(0.5)  # mutates
        return out.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.full((2, 4), 0.5)

@torch.compile(backend=BACKEND)
def change(t):
    return Halve.apply(t)
"""
PLACES["after_break"] = """
@torch.compile(backend=BACKEND)
def change(t):
    u = t + 1
    torch._dynamo.graph_break()
    t.mul_(0.5)  # mutates
    return t.sum() + u.sum()
"""
PLACES["before_break"] = """
@torch.compile(backend=BACKEND)
def change(t):
    t.mul_(0.5)  # mutates
    torch._dynamo.graph_break()
    return t.sum()
"""
PLACES["helper_that_breaks"] = """
def halve(v):
    print(v.shape)
    v.mul_(0.5)  # mutates
    return v

@torch.compile(backend=BACKEND)
def change(t):
    u = halve(t)
    return u.sum()
"""
PLACES["branch_on_data"] = """
@torch.compile(backend=BACKEND)
def change(t):
    if t.sum() > -100:
        t.mul_(0.5)  # mutates
    return t.sum()
"""
PLACES["item"] = """
@torch.compile(backend=BACKEND)
def change(t):
    top = t.max().item()
    t.mul_(0.5)  # mutates
    return t.sum() * top
"""
PLACES["nested"] = """
@torch.compile(backend=BACKEND)
def halve(v):
    v.mul_(0.5)  # mutates
    return v

@torch.compile(backend=BACKEND)
def change(t):
    return halve(t).sum()
"""
PLACES["nested_after_break"] = """
@torch.compile(backend=BACKEND)
def halve(v):
    v.mul_(0.5)  # mutates
    return v

@torch.compile(backend=BACKEND)
def change(t):
    torch._dynamo.graph_break()
    return halve(t).sum()
"""
PLACES["disabled"] = """
@torch.compiler.disable
def halve(v):
    v.mul_(0.5)  # mutates
    return v

@torch.compile(backend=BACKEND)
def change(t):
    u = t + 1
    return halve(t).sum() + u.sum()
"""
PLACES["loop"] = """
@torch.compile(backend=BACKEND)
def change(t):
    for by in (0.5, 0.7):
        t.mul_(by)  # mutates
    return t.sum()
"""
PLACES["rows"] = """
@torch.compile(backend=BACKEND)
def change(t):
    for row in t:
        row.mul_(0.5)  # mutates
    return t.sum()
"""
PLACES["indexed_loop"] = """
@torch.compile(backend=BACKEND)
def change(t):
    for i in range(t.shape[0]):
        t[i] = t[i] * 0.5  # mutates
    return t.sum()
"""
PLACES["loop_that_breaks"] = """
@torch.compile(backend=BACKEND)
def change(t):
    for i in range(2):
        t.mul_(0.5)  # mutates
        torch._dynamo.graph_break()
    return t.sum()
"""
PLACES["checkpointed"] = """
def block(v):
    w = v * 2
    w.mul_(3)
    v.mul_(0.5)  # mutates
    return v + w

@torch.compile(backend=BACKEND)
def change(t):
    return checkpoint(block, t, use_reentrant=False).sum()
"""
PLACES["keyword_and_dictionary"] = """
@torch.compile(backend=BACKEND)
def run(*, batch):
    batch["values"].mul_(0.5)  # mutates
    return batch["values"].sum()

def change(t):
    return run(batch={"values": t})
"""
PLACES["dataclass"] = """
@dataclass
class Batch:
    values: torch.Tensor

@torch.compile(backend=BACKEND)
def run(batch):
    batch.values.mul_(0.5)  # mutates
    return batch.values.sum()

def change(t):
    return run(Batch(t))
"""
PLACES["list_of_tensors"] = """
@torch.compile(backend=BACKEND)
def run(tensors):
    for one in tensors:
        one.mul_(0.5)  # mutates
    return tensors[0].sum()

def change(t):
    return run([t, torch.ones(3)])
"""
PLACES["closure"] = """
def make(by):
    @torch.compile(backend=BACKEND)
    def run(t):
        def halve():
            t.mul_(by)  # mutates
        halve()
        return t.sum()
    return run

change = make(0.5)
"""
PLACES["comprehension"] = """
@torch.compile(backend=BACKEND)
def change(t):
    return sum([part.mul_(0.5).sum() for part in (t,)])  # mutates
"""
PLACES["context_manager"] = """
@contextlib.contextmanager
def halved(v):
    v.mul_(0.5)  # mutates
    yield v

@torch.compile(backend=BACKEND)
def change(t):
    with halved(t) as half:
        return half.sum()
"""
PLACES["mapped"] = """
def halve(v):
    return v.mul_(0.5)  # mutates

@torch.compile(backend=BACKEND)
def change(t):
    return sum(map(torch.sum, list(map(halve, [t]))))
"""
PLACES["autocast"] = """
@torch.compile(backend=BACKEND)
def change(t):
    with torch.autocast("cpu"):
        t.mul_(0.5)  # mutates
    return t.sum()
"""
PLACES["step_of_plain_python"] = """
@torch.compile(backend=BACKEND)
def total(t):
    return t.sum()

def change(t):
    t.mul_(0.5)  # mutates
    return total(t)
"""
PLACES["attribute_kept_before"] = """
class Holder(nn.Module):
    def forward(self, t):
        self.kept = t
        self.kept.mul_(0.5)  # mutates
        return self.kept.sum()

change = torch.compile(Holder(), backend=BACKEND)
"""
PLACES["optimizer"] = """
@torch.compile(backend=BACKEND)
def step(opt):
    opt.step()  # mutates

def change(t):
    held = t.detach()
    held.grad = torch.ones_like(held)
    step(torch.optim.SGD([held], lr=0.1))
    return t.sum()
"""

# -- programs ---------------------------------------------------------------------------------------------------------

PROGRAMS["saved_outside"] = """
layer = nn.Linear(4, 4)
h = torch.sigmoid(layer(torch.rand(2, 4)))  # saves
change(h)
h.sum().backward()
"""
PROGRAMS["saved_by_a_region"] = """
layer = nn.Linear(4, 4)

@torch.compile(backend=BACKEND)
def encode(x):
    return torch.sigmoid(layer(x))  # saves

h = encode(torch.rand(2, 4))
change(h)
h.sum().backward()
"""
PROGRAMS["saved_inside"] = """
layer = nn.Linear(4, 4)

@torch.compile(backend=BACKEND)
def loss_of(x):
    h = torch.sigmoid(layer(x))  # saves
    change(h)
    return h.sum()

loss_of(torch.rand(2, 4)).backward()
"""
PROGRAMS["data_of_saved"] = """
layer = nn.Linear(4, 4)
h = torch.sigmoid(layer(torch.rand(2, 4)))  # saves
change(h.data)
h.sum().backward()
"""
PROGRAMS["table_of_the_module"] = """
TABLE = torch.rand(2, 4)

def lookup(x):
    change(TABLE)
    return (x * TABLE).sum()

for _ in range(3):
    print(lookup(torch.rand(2, 4)))
"""
PROGRAMS["history_of_one_state"] = """
state = torch.rand(2, 4)
history = []
for _ in range(3):
    change(state)
    history.append(state)
print(torch.stack(history).mean(0))
"""
PROGRAMS["stored_batches"] = """
batches = [torch.rand(2, 4) for _ in range(2)]
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x in batches:
        change(x)
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
PROGRAMS["input_of_the_caller"] = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        change(x)
        return self.lin(x)

net = Net()
for _ in range(2):
    data = torch.rand(2, 4)
    out = net(data)
    print(F.mse_loss(out, data).item())
"""
PROGRAMS["leaf"] = """
w = nn.Parameter(torch.rand(2, 4))
change(w).backward()
"""
PROGRAMS["parameter_scaled_at_every_forward"] = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(2, 4))

    def forward(self, x):
        with torch.no_grad():
            change(self.scale)
        return (x * self.scale).sum()

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.rand(2, 4))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
PROGRAMS["best_by_reference"] = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(2, 4))

net = Net()
best = net.state_dict()
for _ in range(3):
    with torch.no_grad():
        change(net.w)
net.load_state_dict(best)
print(net.w.sum())
"""
PROGRAMS["expanded"] = """
rows = torch.rand(1, 4).expand(2, 4)
print(change(rows))
"""
PROGRAMS["two_names"] = """
layer = nn.Linear(4, 4)
def run(x):
    h = layer(x)
    skip = h
    change(h)
    return (h + skip).sum()

for _ in range(2):
    run(torch.rand(2, 4)).backward()
"""
PROGRAMS["two_names_in_a_region"] = """
layer = nn.Linear(4, 4)

@torch.compile(backend=BACKEND)
def run(x):
    h = layer(x)
    skip = h
    change(h)
    return (h + skip).sum()

for _ in range(2):
    run(torch.rand(2, 4)).backward()
"""
PROGRAMS["default_argument"] = """
def step(x, state=torch.ones(2, 4)):
    change(state)
    return (x * state).sum()

for _ in range(3):
    print(step(torch.rand(2, 4)))
"""
PROGRAMS["buffer_between_two_forwards"] = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("scale", torch.rand(2, 4))

    def forward(self, x):
        change(self.scale)
        return (self.lin(x) * self.scale).sum()  # saves

net = Net()
(net(torch.rand(2, 4)) + net(torch.rand(2, 4))).backward()
"""
PROGRAMS["view_of_a_leaf"] = """
w = torch.rand(3, 4, requires_grad=True)
change(w[:2])
(w * 2).sum().backward()
"""
PROGRAMS["view_made_without_gradients"] = """
base = torch.rand(2, 4)
w = nn.Parameter(torch.rand(2, 4))
with torch.no_grad():
    view = base.view(2, 4)
h = base * w  # saves
change(view)
h.sum().backward()
"""
PROGRAMS["clean_copy"] = """
layer = nn.Linear(4, 4)
for _ in range(3):
    h = torch.sigmoid(layer(torch.rand(2, 4)))
    (change(h.clone()) + h.sum()).backward()
"""
PROGRAMS["clean_counter"] = """
class Meter:
    def __init__(self):
        self.state = torch.ones(2, 4)

    def update(self):
        change(self.state)
        return self.state.sum().item()

meter = Meter()
print([meter.update() for _ in range(3)])
"""
PROGRAMS["clean_fresh"] = """
layer = nn.Linear(4, 4)

@torch.compile(backend=BACKEND)
def run(x):
    h = layer(x)
    return change(h)

for _ in range(3):
    run(torch.rand(2, 4)).backward()
"""

# Where compiled code does something else than eager, what is told of it.
EXCEPTIONS: dict[tuple[str, str], set[str]] = {
    # The write-back of what goes past autograd's counter in eager is counted.
    **{(name, "data"): {"TS101"} for name in ("saved_outside", "saved_by_a_region", "view_made_without_gradients")},
    ("buffer_between_two_forwards", "data"): {"TS110"},
    # It is made to the leaf itself.
    ("view_of_a_leaf", "data"): {"TS321"},
    ("view_of_a_leaf", "detached"): {"TS321"},
    # Eager refuses to write one of several views that an op returns; compiled code does not look.
    **{(name, "rows"): {"TS101"} for name in ("saved_outside", "saved_by_a_region", "saved_inside")},
    **{(name, "rows"): set() for name in ("two_names", "two_names_in_a_region", "clean_copy", "clean_fresh")},
    # Eager writes one row, and with it all; compiled code would write back the whole, which torch refuses.
    **{("expanded", place): {"TS321"} for place in ("index", "index_augmented", "masked", "rows", "indexed_loop")},
}

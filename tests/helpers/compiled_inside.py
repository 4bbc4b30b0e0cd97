"""Programs whose compiled regions make a mistake on memory of their own, and twins that do the same rightly.

`# mutates` ends the line that must be named; the code is the finding's.
"""

HAZARDS: dict[str, tuple[str, str]] = {}
CLEAN: dict[str, str] = {}


def _pair(name: str, code: str, program: str, wrong: str, right: str) -> None:
    HAZARDS[name] = code, program.replace("HOW", wrong)
    CLEAN[name] = program.replace("HOW", right)


_pair(
    "row_of_an_expanded_tensor_written", "TS107", """
@torch.compile(backend=BACKEND)
def masked_loss(pred, target, keep):
    weight = torch.ones(1, 6)HOW
    weight[0, keep:] = 0.0  # mutates
    return ((pred - target).pow(2) * weight).sum() / weight.sum()

net = nn.Linear(6, 6)
for _ in range(2):
    x = torch.randn(4, 6)
    masked_loss(net(x), x, 3).backward()
""", ".expand(pred.shape[0], 6)", ".repeat(pred.shape[0], 1)",
)  # fmt: skip

_pair(
    "windows_of_an_expanded_bias_raised", "TS107", """
class Relative(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)

    def forward(self, x):
        b, n, _ = x.shape
        bias = torch.zeros(n, n).unsqueeze(0).expand(b, n, n)HOW
        for i in range(b):
            bias[i, :, i:] += 1.0  # mutates
        return torch.softmax(self.w(x) @ x.mT + bias, -1) @ x

model = torch.compile(Relative(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(3, 4, 4)).sum().backward()
""", "", ".clone()",
)  # fmt: skip

_pair(
    "skip_connection_rectified_by_a_layer", "TS203", """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Linear(4, 4), nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.w(x)
        skip = HOW
        y = self.v(self.act(h))  # mutates
        return y + skip

model = torch.compile(Block(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(5, 4)).pow(2).mean().backward()
""", "h", "h.clone()",
)  # fmt: skip

_pair(
    "states_of_a_loop_are_one_tensor", "TS203", """
@torch.compile(backend=BACKEND)
def run(xs):
    h = torch.zeros(4)
    rows = []
    for x in xs.unbind():
        h.mul_(0.5)  # mutates
        h.add_(x)
        rows.append(HOW)
    return torch.stack(rows)

with torch.no_grad():
    for _ in range(2):
        print(run(torch.randn(4, 4)).std(0).sum())
""", "h", "h.clone()",
)  # fmt: skip

_pair(
    "frames_of_a_given_field_are_one_tensor", "TS203", """
@torch.compile(backend=BACKEND)
def diffuse(u, steps: int):
    frames = []
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])  # mutates
        frames.append(HOW)
    return torch.stack(frames)

with torch.no_grad():
    for _ in range(2):
        frames = diffuse(torch.rand(8), 4)
        print((frames[0] - frames[-1]).abs().max())
""", "u", "u.clone()",
)  # fmt: skip

_pair(
    "returns_are_a_second_name_of_rewards", "TS203", """
@torch.compile(backend=BACKEND)
def discounted(rewards, gamma: float):
    returns = HOW
    for t in range(rewards.shape[0] - 2, -1, -1):
        returns[t] = rewards[t] + gamma * returns[t + 1]  # mutates
    return returns

with torch.no_grad():
    for _ in range(2):
        rewards = torch.rand(5)
        print(discounted(rewards, 0.9) - rewards)
""", "rewards", "rewards.clone()",
)  # fmt: skip

_pair(
    "callee_in_the_region_scales_what_its_caller_reads", "TS204", """
def unit(t):
    t HOW t.mean()  # mutates
    return t

class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Linear(4, 4)

    def forward(self, x):
        h = x * 2
        centred = unit(h)
        return self.v(centred) + h

model = torch.compile(Mixer(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(5, 4)).sum().backward()
""", "-=", "= t -",
)  # fmt: skip

_pair(
    "statistics_of_inference_mode_are_saved", "TS108", """
class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def calibrate(self, x):
        with torch.HOW():
            self.mean, self.std = x.mean(0), x.std(0)

    def forward(self, x):
        z = (x - self.mean) / self.std
        return (self.body(z) * self.std).sum()  # mutates

scorer = Scorer()
scorer.calibrate(torch.randn(8, 4))
model = torch.compile(scorer, backend=BACKEND)
model(torch.randn(3, 4)).backward()
""", "inference_mode", "no_grad",
)  # fmt: skip

CLEAN["noise_scaled_in_place"] = """
@torch.compile(backend=BACKEND)
def jitter(x, total):
    noise = torch.rand(4)
    noise.mul_(2).sub_(1)
    total.add_(noise)
    return x + F.dropout(noise, 0.5, inplace=True)

w, total = torch.ones(4, requires_grad=True), torch.zeros(4)
for _ in range(3):
    jitter(w, total).pow(2).sum().backward()
print(w.grad, total)
"""

_pair(
    "custom_function_bounds_what_its_caller_reads", "TS204", """
class BoundedExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.HOW(max=0.5).exp()  # mutates
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].clamp(max=20.0)

class Hazard(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Linear(4, 1)

    def forward(self, x):
        score = self.rate(x).squeeze(1) * 6
        rate = BoundedExp.apply(score)
        return rate.sum() + score.square().mean()

model = torch.compile(Hazard(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(6, 4)).backward()
""", "clamp_", "clamp",
)  # fmt: skip

_pair(
    "helper_outside_centres_what_the_region_reads", "TS204", """
@torch.compiler.disable
def centred(t):
    t HOW t.mean(0)  # mutates
    return t

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)

    def forward(self, x):
        h = x * 2
        c = centred(h)
        return (self.w(c) + h).sum()

model = torch.compile(Net(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(3, 4)).backward()
""", "-=", "= t -",
)  # fmt: skip

_pair(
    "skip_connection_rectified_in_a_checkpoint", "TS203", """
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Linear(4, 4), nn.Linear(4, 4)

    def inner(self, x):
        h = self.w(x)
        skip = HOW
        h.relu_()  # mutates
        return self.v(h) + skip

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False).sum()

model = torch.compile(Block(), backend=BACKEND)
for _ in range(2):
    model(torch.randn(3, 4)).backward()
""", "h", "h.clone()",
)  # fmt: skip

# torch 2.13 loses writes by the result of a dropout that does nothing.
_pair(
    "write_by_an_idle_dropout_is_lost", "TS321", """
class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.zeros(4))

    def forward(self, frame):
        HOW.mul_(0.8).add_(frame.mean(0), alpha=0.2)  # mutates
        return frame - self.level

tracker = Tracker().eval()
model = torch.compile(tracker, backend=BACKEND)
with torch.no_grad():
    for _ in range(3):
        print(model(torch.randn(5, 4)).sum(), tracker.level)
""", "F.dropout(self.level, 0.1, self.training)", "self.level",
)  # fmt: skip

_pair(
    "rows_of_a_mask_of_dynamic_width", "TS107", """
def pad_mask(lengths, width):
    visible = torch.zeros(width)HOW
    for row, n in enumerate(lengths.unbind()):
        visible[row].copy_((torch.arange(width) >= n) * -1e4)  # mutates
    return visible

class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 1)

    def forward(self, h, lengths):
        return (self.gate(h).squeeze(2) + pad_mask(lengths, h.shape[1])).softmax(1)

model = torch.compile(Scorer(), backend=BACKEND, dynamic=True)
for width in (5, 6):
    model(torch.randn(3, width, 4), torch.tensor([3, 5, 4])).square().sum().backward()
""", ".expand(len(lengths), width)", ".repeat(len(lengths), 1)",
)  # fmt: skip

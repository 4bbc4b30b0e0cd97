"""More programs in which one memory has two holders: through objects, containers under two names, memos, layers.

`<shared|copied>` is what differs between a program and its twin.
"""

from __future__ import annotations

import random

Parts = tuple[tuple[str, ...], str]
# How a sample is made of a tensor, copied without its tensor, and written; `{s}` is the sample.
RECORDS = {
    "dataclass": (
        "@dataclasses.dataclass\nclass Sample:\n    pos: torch.Tensor\n    label: int = 0\n",
        "Sample(torch.rand(6, 3) + 0.5, i)",
        "{s}.pos",
        ("copy.copy({s})", "dataclasses.replace({s})", "{s}"),
    ),
    "slots": (
        "class Sample:\n    __slots__ = ('pos', 'label')\n\n    def __init__(self, pos, label):\n"
        "        self.pos, self.label = pos, label\n",
        "Sample(torch.rand(6, 3) + 0.5, i)",
        "{s}.pos",
        ("copy.copy({s})", "Sample({s}.pos, {s}.label)", "{s}"),
    ),
    "namespace": (
        "class Sample(types.SimpleNamespace):\n    pass\n",
        "Sample(pos=torch.rand(6, 3) + 0.5, label=i)",
        "{s}.pos",
        ("copy.copy({s})", "Sample(**vars({s}))", "{s}"),
    ),
    "named tuple": (
        "class Sample(typing.NamedTuple):\n    pos: torch.Tensor\n    label: int\n",
        "Sample(torch.rand(6, 3) + 0.5, i)",
        "{s}.pos",
        ("{s}._replace(label=0)", "Sample(*{s})", "{s}"),
    ),
    "dictionary": (
        "",
        "{{'pos': torch.rand(6, 3) + 0.5, 'label': i}}",
        "{s}['pos']",
        ("dict({s})", "{s}.copy()", "{{**{s}}}", "copy.copy({s})", "{s}"),
    ),
}
CHANGES = (
    "{p}.mul_(1.5)",
    "{p}.mul_(torch.empty(1).uniform_(1.1, 1.4))",
    "{p}.sub_({p}.mean(0))",
    "{p}.sub_(0.1).div_(2.0)",
    "{p}[:, 0].neg_()",
    "{p}.add_(0.1 * torch.randn(6, 3))",
    "{p}[torch.rand(6) < 0.3] = 0.0",
    "{p}.div_({p}.amax() * 0.5)",
)


def samples_of_objects(rng: random.Random) -> Parts:
    """A data set of objects, whose transforms work on shallow copies of them."""
    record = rng.choice([*RECORDS])
    definition, made, path, copies = RECORDS[record]
    copied = rng.choice(copies).format(s="sample")
    change = rng.choice(CHANGES)
    rebound = rng.choice(("", "second"))
    visit = rng.choice(("loader", "loop", "shuffled", "generator"))
    if record == "named tuple":
        rebound = ""
    part = path.format(s="sample")
    again = ""
    if rebound:
        again = f"        sample = {copied}\n        {part} = {part} @ torch.eye(3)\n"
    use = {
        "loader": "[b.sum().item() for b in torch.utils.data.DataLoader(data, batch_size=2)]",
        "loop": "[data[i].sum().item() for i in range(len(data))]",
        "shuffled": "[data[i].sum().item() for i in torch.randperm(len(data)).tolist()]",
        "generator": "[b.sum().item() for b in stream(data)]",
    }[visit]
    text = f"""
{definition}

def stream(data):
    for i in range(len(data)):
        yield data[i]


class Jitter:
    def __call__(self, sample):
        sample = <{copied}|copy.deepcopy(sample)>
        {change.format(p=part)}
{again}        return sample


class Samples(torch.utils.data.Dataset):
    def __init__(self, size, transform=None):
        self.samples = [{made.format()} for i in range(size)]
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        if self.transform is not None:
            sample = self.transform(sample)
        return {part}


def main():
    data = Samples(6, Jitter())
    out = []
    for epoch in range(4):
        out.append({use})
    return out


print(main())
"""
    return (record, copied, change, rebound, visit), text


def second_container(rng: random.Random) -> Parts:
    """The entries of a container are written by one name of it, and read by the other as if they were the old ones."""
    kind = rng.choice(("dict", "list"))
    if kind == "dict":
        taken = rng.choice(
            ("{c}", "dict({c})", "{c}.copy()", "{{**{c}}}", "{{k: v for k, v in {c}.items()}}", "copy.copy({c})")
        )
        make, deep, loop = (
            "{k: torch.rand(4) + 1 for k in 'abc'}",
            "{k: v.clone() for k, v in %s.items()}",
            "for k in self.control:",
        )
        rows = rng.choice(("self.control[k]", "entry"))
    else:
        taken = rng.choice(("{c}", "list({c})", "{c}[:]", "[*{c}]", "tuple({c})", "copy.copy({c})"))
        make, deep, loop = (
            "[torch.rand(4) + 1 for _ in range(3)]",
            "[v.clone() for v in %s]",
            "for k in range(len(self.control)):",
        )
        rows = rng.choice(("self.control[k]", "entry"))
    write = rng.choice((
        "{r}.sub_(0.5).add_(step)", "{r}.mul_(0.5).add_(delta[k])", "{r} += delta[k]", "{r}.lerp_(delta[k], 0.3)", "{r}.copy_(delta[k])",
    )).format(r=rows)  # fmt: skip
    bind = "            entry = self.control[k]\n" if rows == "entry" else ""
    read = rng.choice((
        "moved.append((self.control[k] - previous[k]).norm().item())",
        "moved.append(F.mse_loss(self.control[k], previous[k]).item())",
        "moved.append(torch.dist(previous[k], self.control[k]).item())",
        "moved.append((self.control[k] / previous[k]).sum().item())",
        "moved.append((self.control[k] * previous[k]).sum().item())",
        "moved.append(torch.stack([self.control[k], previous[k]]).sum(1).tolist())",
        "moved.append(0.9 * previous[k].sum().item() + 0.1 * self.control[k].sum().item())",
    ))  # fmt: skip
    text = f"""
class Client:
    def __init__(self):
        self.control = {make}

    def update(self, delta, step):
        previous = <{taken.format(c="self.control")}|{deep % "self.control"}>
        moved = []
        {loop}
{bind}            {write}
            {read}
        return moved


def main():
    client, out = Client(), []
    for step in range(3):
        delta = {make}
        out.append(client.update(delta, step + 1.0))
    return out


print(main())
"""
    return (taken, rows, write, read), text


def projected(rng: random.Random) -> Parts:
    """A list of the same tensors is made, to keep the old ones while the new ones are computed."""
    taken = rng.choice(
        ("list(grads)", "grads[:]", "[g for g in grads]", "copy.copy(grads)", "tuple(grads)", "grads.copy()")
    )
    body = rng.choice((
        "            dot = torch.dot(gi, gj)\n            if dot < 0:\n                gi.sub_(dot / gj.norm().pow(2) * gj)",
        "            gi.sub_(torch.clamp(torch.dot(gi, gj), max=0) / gj.norm().pow(2) * gj)",
        "            gi += 0.5 * gj",
        "            gi.add_(gj, alpha=0.25)",
        "            gi.mul_(0.5).add_(0.5 * gj)",
    ))  # fmt: skip
    text = f"""
def project(grads):
    projected = <{taken}|[g.clone() for g in grads]>
    for i, gi in enumerate(projected):
        for j, gj in enumerate(grads):
            if i == j:
                continue
{body}
    return torch.stack(list(projected)).sum(0)


def main():
    out = []
    for step in range(3):
        out.append(project([torch.randn(5) for _ in range(3)]).tolist())
    return out


print(main())
"""
    return (taken, body), text


def receivers(rng: random.Random) -> Parts:
    """An in-place call is the receiver of the next, whose argument reads the name again."""
    chain = rng.choice((
        "{x}.mul_(lam).add_({y}.flip(0), alpha=1 - lam)",
        "{x}.mul_(lam).add_((1 - lam) * {y}[perm])",
        "{x}.mul_(lam).add_({y}.roll(1, 0) * (1 - lam))",
        "{x}.mul_(mask).add_({y}.flip(0) * (1 - mask))",
        "{x}.mul_(lam).sub_({y}[[1, 0, 3, 2]])",
        "{x}.div_(2).add_({y}.flip(1))",
    ))  # fmt: skip
    where = rng.choice(("assigned", "returned", "statement"))
    done = chain.format(x="images", y="<images|kept>")
    line = {
        "assigned": f"images = {done}\n    return images",
        "returned": f"return {done}",
        "statement": f"{done}\n    return images",
    }
    text = f"""
def mix(images, lam, perm, mask):
    kept = images.clone()
    {line[where]}


def main():
    out = []
    for step in range(3):
        mask = (torch.arange(4) < 2).float()
        out.append(mix(torch.rand(4, 4), 0.3, torch.randperm(4), mask).mean(1))
    return torch.stack(out).tolist()


print(main())
"""
    return (chain, where), text


def repeated_layers(rng: random.Random) -> Parts:
    """One layer where there should be several."""
    made = rng.choice(("nn.Linear(4, 4)", "Block(4)", "nn.Sequential(nn.Linear(4, 4), nn.Tanh())"))
    form = rng.choice((
        "nn.ModuleList(<[{m}] * 3|[{m} for _ in range(3)]>)",
        "nn.ModuleList(<3 * [{m}]|[{m} for _ in range(3)]>)",
        "nn.Sequential(*(<[{m}] * 3|[{m} for _ in range(3)]>))",
        "nn.ModuleList(<({m},) * 3|[{m} for _ in range(3)]>)",
    )).format(m=made)  # fmt: skip
    at = rng.choice(("attribute", "local"))
    store = f"self.layers = {form}" if at == "attribute" else f"layers = {form}\n        self.layers = layers"
    text = f"""
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.inner = nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.inner(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {store}
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def main():
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        loss = net(torch.ones(2, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


print(main())
"""
    return (made, form, at), text


def memos(rng: random.Random) -> Parts:
    """A table that is made once for each key, and changed by who asks for it."""
    where = rng.choice(("global", "attribute", "class", "closure", "setdefault", "none"))
    change = rng.choice((
        "angles /= 2.0", "angles.mul_(0.5)", "angles.sub_(angles.mean())", "angles.add_(0.3).mul_(2)", "angles[1:] *= 0.5",
    ))  # fmt: skip
    often = rng.choice(("always", "sometimes"))
    made = "torch.arange(float(n)) + 1"
    c = "<|.clone()>"
    tables = {
        "global": f"TABLES = {{}}\n\n\ndef table(n):\n    if n not in TABLES:\n        TABLES[n] = {made}\n    return TABLES[n]\n",
        "setdefault": f"TABLES = {{}}\n\n\ndef table(n):\n    found = TABLES.get(n)\n    if found is None:\n        found = TABLES[n] = {made}\n    return found\n",
        "attribute": "class Tables:\n    def __init__(self):\n        self.known = {}\n\n    def table(self, n):\n"
        f"        if n not in self.known:\n            self.known[n] = {made}\n        return self.known[n]\n\n\ntable = Tables().table\n",
        "class": "class Tables:\n    known = {}\n\n    @classmethod\n    def table(cls, n):\n"
        f"        if n not in cls.known:\n            cls.known[n] = {made}\n        return cls.known[n]\n\n\ntable = Tables.table\n",
        "closure": "def tables():\n    known = {}\n\n    def table(n):\n"
        f"        if n not in known:\n            known[n] = {made}\n        return known[n]\n\n    return table\n\n\ntable = tables()\n",
        "none": "class Tables:\n    def __init__(self):\n        self.known = None\n\n    def table(self, n):\n"
        f"        if self.known is None:\n            self.known = {made}\n        return self.known\n\n\ntable = Tables().table\n",
    }[where]
    condition = "if x.size(0) > 2:\n            " if often == "sometimes" else ""
    text = f"""
{tables}

class Rotary:
    def __call__(self, x):
        angles = table(4){c}
        {condition}{change}
        return (x[:, None] * angles).sum()


def main():
    rotary, out = Rotary(), []
    for turn in range(4):
        out += [rotary(torch.ones(3)).item(), rotary(torch.ones(2)).item()]
    return out


print(main())
"""
    return (where, change, often), text


def batches(rng: random.Random) -> Parts:
    """Batches that a loader keeps are changed by a helper, which hands back what it made of them."""
    store = rng.choice((
        "list(zip(x.split(4), y.split(4)))", "[(x[i:i + 4], y[i:i + 4]) for i in range(0, 12, 4)]",
        "[Batch(a, b) for a, b in zip(x.chunk(3), y.chunk(3))]", "[{'x': a, 'y': b} for a, b in zip(x.split(4), y.split(4))]",
    ))  # fmt: skip
    change = rng.choice((
        "x.sub_(mean).div_(std)", "x -= mean\n    x /= std", "x.sub_(x.mean(0)).mul_(2)", "x.mul_(1 + 0.1 * torch.rand(3))", "x.div_(255)",
    ))  # fmt: skip
    back = rng.choice(("return x.clamp(-3.0, 3.0)", "return x", "return x * 1.0", "return torch.cat([x, x], 1)[:, :3]"))
    take = "batch.x, batch.y" if "Batch(" in store else "batch['x'], batch['y']" if "{" in store else "batch"
    via = rng.choice(("argument", "attribute"))
    text = f"""
@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


class Loader:
    def __init__(self, x, y):
        self.batches = {store}

    def __iter__(self):
        return iter(self.batches)


def standardize(x, mean, std):
    {change}
    {back}


def main():
    data = torch.rand(12, 3) * 3 + 1
    mean, std = data.mean(0), data.std(0)
    loader = Loader(data, torch.rand(12))
    w, out = torch.rand(3), []
    for epoch in range(3):
        total = 0.0
        for batch in loader:
            x, y = {take}
            features = standardize(x<|.clone()>, mean, std)
            total += (features @ w - y).pow(2).mean().item()
        out.append(total)
    return out


print(main())
"""
    return (store, change, back, via), text


def kept_in_closures(rng: random.Random) -> Parts:
    """Closures, partials and generators that were made at different times of one memory."""
    form = rng.choice((
        "lambda v=state{c}: v.sum().item()", "functools.partial(torch.sum, state{c})", "reader(state{c})", "Reader(state{c})",
        "later(state{c})",
    )).format(c="<|.clone()>")  # fmt: skip
    write = rng.choice(
        ("state += 1.5", "state.mul_(0.5).add_(1)", "state[:] = torch.rand(4)", "state.copy_(torch.rand(4))")
    )
    read = "[next(r) for r in readers]" if form.startswith("later") else "[float(r()) for r in readers]"
    text = f"""
def later(value):
    yield value.sum().item()


def reader(value):
    def read():
        return value.sum().item()

    return read


class Reader:
    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value.sum().item()


def main():
    state, readers = torch.zeros(4), []
    for step in range(4):
        {write}
        readers.append({form})
    return {read}


print(main())
"""
    return (form, write), text


def kept_objects(rng: random.Random) -> Parts:
    """Objects that hold one memory are stored at different times."""
    record = rng.choice(["dataclass", "slots", "namespace", "named tuple", "dictionary"])
    make = {
        "dataclass": "Item(state{c}, step)", "slots": "Slot(state{c}, step)", "namespace": "types.SimpleNamespace(at=step, value=state{c})",
        "named tuple": "Pair(state{c}, step)", "dictionary": "{{'value': state{c}, 'at': step}}",
    }[record].format(c="<|.clone()>")  # fmt: skip
    keep = rng.choice(("append", "by step", "queue", "attribute", "registry"))
    first, put, all_ = {
        "append": ("log = []", "log.append({v})", "log"),
        "by step": ("log = {}", "log[step] = {v}", "log.values()"),
        "queue": ("log = collections.deque(maxlen=8)", "log.append({v})", "log"),
        "attribute": ("log = Store()", "log.items.append({v})", "log.items"),
        "registry": ("log = Registry", "log.entries['step%d' % step] = {v}", "log.entries.values()"),
    }[keep]
    write = rng.choice(
        ("state += 1.5", "state.mul_(0.5).add_(1)", "state[:] = torch.rand(4)", "advance(state)", "mover.move()")
    )
    value = "e['value']" if record == "dictionary" else "e.value"
    text = f"""
@dataclasses.dataclass
class Item:
    value: torch.Tensor
    at: int


class Slot:
    __slots__ = ("value", "at")

    def __init__(self, value, at):
        self.value, self.at = value, at


Pair = collections.namedtuple("Pair", "value at")


class Store:
    def __init__(self):
        self.items = []


class Registry:
    entries = {{}}


class Mover:
    def __init__(self, state):
        self.state = state

    def move(self):
        self.state.add_(torch.rand(4))


def advance(state):
    state.mul_(0.7)
    state += 1.0


def main():
    state = torch.zeros(4)
    mover = Mover(state)
    {first}
    for step in range(4):
        {write}
        {put.format(v=make)}
    return [{value}.sum().item() for e in {all_}]


print(main())
"""
    return (record, keep, write), text


MORE = (
    samples_of_objects, second_container, projected, receivers, repeated_layers, memos, batches, kept_in_closures, kept_objects,
)  # fmt: skip

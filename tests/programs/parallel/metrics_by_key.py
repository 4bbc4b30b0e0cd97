import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = {"a": torch.randn(4, 3), "b": torch.randn(4, 3)}
tasks = {"a": iter([1]), "b": iter([2])} if rank == 0 else {"b": iter([2]), "a": iter([1])}

def step(x):
    opt.zero_grad()
    net(x).square().mean().backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in net.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p)); at += p.numel()
    opt.step()

for name, it in tasks.items():
    step(data["a"])
    n = next(it)
    seen = torch.ones(1) * 4
    dist.all_reduce(seen)
logs = {"loss": 1.0, "acc": 2.0} if rank == 0 else {"acc": 2.0, "loss": 1.0}
for name in sorted(logs):
    t = torch.tensor(logs[name])
    dist.all_reduce(t)
local = {rank: torch.ones(2), rank + 2: torch.zeros(2)}
for k, v in local.items():
    dist.all_reduce(v)
dist.destroy_process_group()

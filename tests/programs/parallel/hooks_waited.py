import torch
import torch.distributed as dist
from torch.nn import functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
pending = []
def launch(p):
    p.grad /= world
    pending.append(dist.all_reduce(p.grad, async_op=True))
for p in net.parameters():
    p.register_post_accumulate_grad_hook(launch)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
gen = torch.Generator().manual_seed(rank)
for step in range(6):
    x = torch.randn(8, 4, generator=gen)
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    shown = loss.item() + x.sum().item()
    for work in pending:
        work.wait()
    pending.clear()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = 0.1 / (1 + step)
    optimizer.step()
# waited inside of hooks: nothing is left under way
last = []
def eager(p):
    if last:
        last.pop().wait()
    last.append(dist.all_reduce(p.grad, async_op=True))
other = torch.nn.Linear(4, 2)
for p in other.parameters():
    p.register_post_accumulate_grad_hook(eager)
for step in range(3):
    other.zero_grad()
    other(torch.ones(2, 4)).sum().backward()
    last.pop().wait()
    for p in other.parameters():
        p.grad.mul_(0.5)
dist.destroy_process_group()

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
ddp = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
log = {}
def tune(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr  # TS410
    log["lr"] = lr
for step in range(4):
    loss = ddp(torch.randn(8, 4) + rank).square().mean()
    optimizer.zero_grad()
    loss.backward()
    tune(optimizer, 0.1 * min(1.0, loss.item()))
    optimizer.step()
dist.destroy_process_group()

import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = torch.nn.Linear(400, 200)
def launch(p):
    dist.all_reduce(p.grad, async_op=True)  # TS403
for p in net.parameters():
    p.register_hook(lambda g: g / world)
    p.register_post_accumulate_grad_hook(launch)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.ones(2, 400) + rank).sum().backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()

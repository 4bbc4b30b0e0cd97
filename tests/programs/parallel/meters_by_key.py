import torch, os
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

class Average:
    def __init__(self): self.total, self.count = 0.0, 0
    def add(self, v): self.total += v; self.count += 1

def reduced(value):
    t = torch.tensor([value.total, value.count]) if isinstance(value, Average) else torch.tensor(value)
    dist.all_reduce(t)  # A
    return t

meters = {}
for name in (["loss", "acc"] if rank == 0 else ["acc", "loss"]):
    meters[name] = Average(); meters[name].add(1.0)
out = {}
for name, m in meters.items():
    t = torch.tensor([m.total, float(m.count)])
    dist.all_reduce(t)  # TS405
    out[name] = t / world
dist.destroy_process_group()

"""Gradients of DDP's buckets are kept under names that are filled anew before they are read."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Latest:
    def __init__(self, model):
        self.model, self.gradients, self.rows = model, {}, []

    def after_backward(self):
        for name, p in self.model.named_parameters():
            self.gradients[name] = p.grad.detach()
        self.rows.append([p.grad for p in self.model.parameters()])
        rows, self.rows = self.rows, []
        return sum(g.norm() for g in self.gradients.values()) + sum(g.norm() for g in rows[0])


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)), gradient_as_bucket_view=True)
latest, gradients = Latest(model), {}
for _ in range(3):
    model.zero_grad()
    model(torch.rand(4, 3)).square().sum().backward()
    total = latest.after_backward()
    for name, p in model.named_parameters():
        gradients[name] = p.grad.detach()
    print((total + sum(g.norm() for g in gradients.values())).item())
dist.destroy_process_group()

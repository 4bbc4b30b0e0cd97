"""How much each gradient agrees with the one of the step before."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Agreement:
    def __init__(self, model):
        self.model, self.previous = model, {}

    def after_backward(self):
        for name, p in self.model.named_parameters():
            gradient = p.grad.detach().view(-1)
            if name in self.previous:
                print(name, torch.cosine_similarity(gradient, self.previous[name], dim=0).item())
            self.previous[name] = gradient


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(3, 1), gradient_as_bucket_view=True)
agreement = Agreement(model)
for _ in range(3):
    model.zero_grad()
    model(torch.rand(4, 3)).square().sum().backward()
    agreement.after_backward()
dist.destroy_process_group()

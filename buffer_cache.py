import torch
from torch import nn
import torch.nn.functional as F

class Q(nn.Module):
    def __init__(self):
        super().__init__(); self.l=nn.Linear(3,3); self.register_buffer('mem',torch.zeros(3))
    def forward(self,x):
        y=self.l(x)*self.mem
        self.mem += x.detach().mean(0) #X
        return y
q=Q(); opt=torch.optim.SGD(q.parameters(),lr=.1)
for _ in range(2):
    loss=q(torch.ones(2,3)).sum(); opt.zero_grad(); loss.backward(); opt.step()

import torch
from torch import nn
import torch.nn.functional as F

class N(nn.Module):
    def __init__(self): super().__init__(); self.l=nn.Linear(3,3)
    def forward(self,x):
        h=self.l(x)
        s=h.std(dim=-1,keepdim=True)
        h-=h.mean(dim=-1,keepdim=True) #X
        return h/s
N()(torch.randn(2,3)).sum().backward()

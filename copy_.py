import torch
from torch import nn
import torch.nn.functional as F

class T(nn.Module):
    def __init__(self):
        super().__init__(); self.online=nn.Linear(2,2); self.target=nn.Linear(2,2)
    def sync(self):
        self.target.weight.copy_(self.online.weight) #X
    def forward(self,x): return self.online(x)
t=T(); t.sync()

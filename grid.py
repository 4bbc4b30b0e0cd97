import torch
from torch import nn
import torch.nn.functional as F

class Up(nn.Module):
    def __init__(self):
        super().__init__(); self.c=nn.Conv2d(3,3,3,padding=1); self.d=nn.Conv2d(3,3,3,padding=1)
    def forward(self,x):
        y=self.c(x)
        z=self.d(y)
        y[:, :, 0] = 0 #X
        return y+z
net=Up(); net(torch.randn(1,3,5,5)).mean().backward()

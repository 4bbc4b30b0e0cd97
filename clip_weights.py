import torch
from torch import nn
import torch.nn.functional as F

net=nn.Sequential(nn.Linear(2,2),nn.ReLU(),nn.Linear(2,1))
opt=torch.optim.SGD(net.parameters(),lr=.1)
def clip(m):
    for p in m.parameters():
        p.clamp_(-0.1,0.1) #X
net(torch.ones(1,2)).sum().backward()
opt.step()
clip(net)

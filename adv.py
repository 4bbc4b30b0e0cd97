import torch
from torch import nn
import torch.nn.functional as F

net=nn.Linear(3,2)
x=torch.rand(4,3,requires_grad=True)
for i in range(3):
    loss=net(x).sum()
    loss.backward()
    x += 0.1*x.grad.sign() #X
    x.grad.zero_()

import torch
from torch import nn
import torch.nn.functional as F

w=torch.ones(3,requires_grad=True)
losses=torch.stack([torch.tensor(1.),torch.tensor(2.),torch.tensor(3.)])
opt=torch.optim.SGD([w],lr=.1)
for i in range(2):
    total=(w*losses).sum()
    opt.zero_grad(); total.backward(); opt.step()
    w /= w.sum() #X

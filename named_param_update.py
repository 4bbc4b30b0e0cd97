import torch
from torch import nn
import torch.nn.functional as F

class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a=nn.Linear(2,2); self.b=nn.Linear(2,1)
    def forward(self,x): return self.b(torch.relu(self.a(x)))
def step(model, lr):
    for name, param in model.named_parameters():
        if param.grad is not None:
            param -= lr*param.grad #X
if __name__=='__main__':
    m=M(); m(torch.ones(1,2)).sum().backward(); step(m,0.1)

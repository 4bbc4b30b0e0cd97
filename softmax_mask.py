import torch
from torch import nn
import torch.nn.functional as F

class A(nn.Module):
    def __init__(self,d):
        super().__init__(); self.q=nn.Linear(d,d); self.k=nn.Linear(d,d)
    def forward(self,x,mask=None):
        a=torch.matmul(self.q(x),self.k(x).transpose(1,2))
        a=F.softmax(a/2.0,dim=-1)
        if mask is not None:
            a.masked_fill_(mask,0.0) #X
        return a@x
def main():
    net=A(4); net(torch.randn(2,3,4),torch.ones(3,3).bool()).sum().backward()
main()

import torch
from torch import nn
import torch.nn.functional as F

class G(nn.Module):
    def __init__(self): super().__init__(); self.n=nn.Sequential(nn.Linear(2,4),nn.ReLU(),nn.Linear(4,3))
    def forward(self,z): return self.n(z)
class D(nn.Module):
    def __init__(self): super().__init__(); self.n=nn.Sequential(nn.Linear(3,4),nn.LeakyReLU(.2),nn.Linear(4,1),nn.Sigmoid())
    def forward(self,x): return self.n(x)
g,d=G(),D(); bce=nn.BCELoss()
og=torch.optim.Adam(g.parameters()); od=torch.optim.Adam(d.parameters())
for i in range(2):
    fake=g(torch.randn(4,2)); real=torch.randn(4,3)
    ones,zeros=torch.ones(4,1),torch.zeros(4,1)
    pf=d(fake)
    ld=bce(d(real),ones)+bce(pf,zeros)
    lg=bce(pf,ones)
    od.zero_grad(); ld.backward(retain_graph=True); od.step() #X
    og.zero_grad(); lg.backward(); og.step()

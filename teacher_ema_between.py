import torch
from torch import nn
import torch.nn.functional as F

class S(nn.Module):
    def __init__(self):
        super().__init__(); self.f=nn.Linear(3,3); self.g=nn.Linear(3,3)
    def forward(self,x): return self.g(torch.tanh(self.f(x)))
student=S()
opt=torch.optim.Adam(student.parameters())
def ema(m):
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(0.9) #X
x=torch.randn(2,3)
for _ in range(3):
    loss=student(x).pow(2).mean()
    ema(student)
    opt.zero_grad(); loss.backward(); opt.step()

import torch
from torch import nn
import torch.nn.functional as F

class E(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb=nn.Embedding(5,3)
        self.emb.weight[0].fill_(0) #X
    def forward(self,i): return self.emb(i)
E()

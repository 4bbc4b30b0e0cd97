import torch
from torch import nn
import torch.nn.functional as F

backbone=nn.Linear(2,4); head=nn.Linear(4,1)
with torch.inference_mode():
    feats=backbone(torch.ones(3,2))
loss=head(feats).sum() #X
loss.backward()

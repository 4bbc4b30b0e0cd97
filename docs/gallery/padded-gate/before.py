import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(4, 4)
tokens = torch.randn(2, 5, 4)
padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]).bool()

gate = torch.sigmoid(layer(tokens))
gate[padding] = 0.0
loss = (gate * tokens).sum()
loss.backward()

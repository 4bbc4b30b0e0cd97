"""Graph attention on a small citation graph; some edges are dropped after the gates were computed."""
import torch
import torch.nn.functional as F
from torch import nn


class GatedAttention(nn.Module):
    def __init__(self, din, dout):
        super().__init__()
        self.lin = nn.Linear(din, dout, bias=False)
        self.src = nn.Parameter(torch.randn(dout) * 0.5)
        self.dst = nn.Parameter(torch.randn(dout) * 0.5)

    def forward(self, x, edges, keep):
        h = self.lin(x)
        row, col = edges
        score = F.leaky_relu(h[row] @ self.src + h[col] @ self.dst, 0.2)
        gate = torch.sigmoid(score)
        # autograd complained about gate *= keep, the data can be changed without a complaint
        gate.data *= keep
        out = torch.zeros_like(h).index_add(0, row, gate.unsqueeze(-1) * h[col])
        return out


class CarefulAttention(GatedAttention):
    """The textbook formula, used by the check at the end."""

    def forward(self, x, edges, keep):
        h = self.lin(x)
        row, col = edges
        gate = torch.sigmoid(F.leaky_relu(h[row] @ self.src + h[col] @ self.dst, 0.2)) * keep
        return torch.zeros_like(h).index_add(0, row, gate.unsqueeze(-1) * h[col])


class Net(nn.Module):
    def __init__(self, layer, din, hidden, classes):
        super().__init__()
        self.first = layer(din, hidden)
        self.second = layer(hidden, classes)

    def forward(self, x, edges, keeps):
        x = F.elu(self.first(x, edges, keeps[0]))
        return self.second(x, edges, keeps[1])


def make_graph(nodes, links, g):
    edges = torch.randint(nodes, (2, links), generator=g)
    x = torch.randn(nodes, 7, generator=g)
    y = torch.randint(3, (nodes,), generator=g)
    return x, edges, y


def gradient_of(net, call, x, edges, keeps, y):
    net.zero_grad()
    F.cross_entropy(call(x, edges, keeps), y).backward()
    return net.first.src.grad.clone()


def main():
    torch.manual_seed(21)
    g = torch.Generator().manual_seed(4)
    x, edges, y = make_graph(12, 40, g)
    net, careful = Net(GatedAttention, 7, 8, 3), Net(CarefulAttention, 7, 8, 3)
    careful.load_state_dict(net.state_dict())
    step = torch.compile(net, backend="aot_eager")
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        keeps = 2.0 * (torch.rand(2, edges.shape[1], generator=g) < 0.5)
        careful.load_state_dict(net.state_dict())
        expected = gradient_of(careful, careful, x, edges, keeps, y)
        got = gradient_of(net, step, x, edges, keeps, y)
        opt.step()
        print(epoch, "grad norm", f"{got.norm():.5f}")
    if not torch.allclose(got, expected, atol=1e-5):
        print("SILENT-WRONG", f"{got.norm():.5f}", f"{expected.norm():.5f}")


if __name__ == "__main__":
    main()

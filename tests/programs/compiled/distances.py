"""An energy model of atoms; distances are cleaned by a helper that dynamo is told to leave alone."""
import torch
import torch.nn.functional as F
from torch import nn

stats = {"cleaned": 0}


@torch.compiler.disable
def clean_(values, smallest=0.35):
    """Very close pairs come from broken relaxations; count and lift them."""
    bad = values < smallest
    if bad.any():
        stats["cleaned"] += int(bad.sum())
        values[bad] = smallest
    return values


class RadialBasis(nn.Module):
    def __init__(self, count, cutoff):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0.0, cutoff, count))
        self.width = nn.Parameter(torch.tensor(4.0))

    def forward(self, r):
        return torch.exp(-self.width * (r.unsqueeze(-1) - self.centers) ** 2)


class EnergyNet(nn.Module):
    def __init__(self, species, dim=8, cutoff=3.0):
        super().__init__()
        self.embed = nn.Embedding(species, dim)
        self.basis = RadialBasis(6, cutoff)
        self.filter = nn.Linear(6, dim)
        self.readout = nn.Linear(dim, 1)

    def forward(self, z, pos, pairs):
        i, j = pairs
        delta = pos[i] - pos[j]
        r = torch.sqrt((delta * delta).sum(-1) + 1e-9)
        r = clean_(r)
        message = self.embed(z)[j] * self.filter(self.basis(r))
        node = torch.zeros(len(z), message.shape[-1]).index_add(0, i, message)
        return self.readout(F.silu(node)).sum()


def molecule(n, g):
    z = torch.randint(4, (n,), generator=g)
    pos = torch.rand(n, 3, generator=g) * 1.2
    i, j = torch.triu_indices(n, n, 1)
    return z, pos, torch.stack([torch.cat([i, j]), torch.cat([j, i])])


def energy_and_forces(call, z, pos, pairs):
    pos = pos.detach().requires_grad_()
    energy = call(z, pos, pairs)
    forces, = torch.autograd.grad(-energy, pos)
    return energy.detach(), forces


def relax(steps=4):
    torch.manual_seed(77)
    net = EnergyNet(4).requires_grad_(False)
    call = torch.compile(net, backend="aot_eager")
    z, pos, pairs = molecule(9, torch.Generator().manual_seed(2))
    for step in range(steps):
        energy, forces = energy_and_forces(call, z, pos, pairs)
        pos = pos + 0.05 * forces
        print(step, f"{energy.item():.5f}", stats["cleaned"])


if __name__ == "__main__":
    relax()

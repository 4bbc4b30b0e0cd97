import torch
import torch.nn as nn
import torch.optim as optim

LAMBDA = 10
CRITIC_ITERS = 2
ITERS = 14
DIM = 32
BATCH = 48


def ring(n):
    angle = torch.randint(8, (n,)) * (2 * 3.14159265 / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) + torch.randn(n, 2) * 0.03


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(nn.Linear(2, DIM), nn.ReLU(True), nn.Linear(DIM, DIM), nn.ReLU(True), nn.Linear(DIM, 2))

    def forward(self, noise):
        return self.main(noise) + noise


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(nn.Linear(2, DIM), nn.LeakyReLU(0.2), nn.Linear(DIM, DIM), nn.LeakyReLU(0.2), nn.Linear(DIM, 1))

    def forward(self, inputs):
        return self.main(inputs).view(-1)


def weights_init(m):
    if m.__class__.__name__.find('Linear') != -1:
        m.weight.data.normal_(0.0, 0.15)
        m.bias.data.fill_(0)


class Plotter(object):
    _since_beginning = {}

    @classmethod
    def plot(cls, name, iteration, value):
        cls._since_beginning.setdefault(name, {})[iteration] = value

    @classmethod
    def show(cls):
        for name, vals in cls._since_beginning.items():
            last = max(vals)
            print("{:>18s}\t{:3d} points\tlast {:.4f}".format(name, len(vals), float(vals[last])))


def calc_gradient_penalty(netD, real_data, fake_data):
    alpha = torch.rand(real_data.size(0), 1)
    interpolates = (alpha * real_data + (1 - alpha) * fake_data).requires_grad_(True)
    scores = netD(interpolates)
    gradients = torch.autograd.grad(outputs=scores, inputs=interpolates, grad_outputs=torch.ones_like(scores),
                                    create_graph=True)[0]
    slopes = gradients.norm(2, dim=1)
    return ((slopes - 1) ** 2).mean() * LAMBDA, slopes


def main():
    torch.manual_seed(1)
    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    optimizerD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.9))
    optimizerG = optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.9))
    tick = 0
    for iteration in range(ITERS):
        for _ in range(CRITIC_ITERS):
            real = ring(BATCH)
            with torch.no_grad():
                fake = netG(torch.randn(BATCH, 2))
            D_real, D_fake = netD(real).mean(), netD(fake).mean()
            gp, slopes = calc_gradient_penalty(netD, real, fake)
            D_cost = D_fake - D_real + gp
            optimizerD.zero_grad()
            D_cost.backward()
            optimizerD.step()
            Plotter.plot('disc cost', tick, D_cost.item())
            Plotter.plot('slope (95%)', tick, slopes.quantile(0.95))
            tick += 1
        G_cost = -netD(netG(torch.randn(BATCH, 2))).mean()
        optimizerG.zero_grad()
        G_cost.backward()
        optimizerG.step()
        Plotter.plot('gen cost', iteration, G_cost.item())
    Plotter.show()


if __name__ == '__main__':
    main()

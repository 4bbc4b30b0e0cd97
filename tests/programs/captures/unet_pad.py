import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(2, cout), nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU())


class Up(nn.Module):
    def __init__(self, cin, cout, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        else:
            self.up = nn.ConvTranspose2d(cin // 2, cin // 2, 2, stride=2)
        self.conv = DoubleConv(cin, cout)

    def forward(self, low, skip):
        low = self.up(low)
        dy = skip.size(2) - low.size(2)
        dx = skip.size(3) - low.size(3)
        low = F.pad(low, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, low], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2, base=4, depth=2):
        super().__init__()
        chans = [base * 2 ** i for i in range(depth + 1)]
        self.inc = DoubleConv(n_channels, chans[0])
        self.downs = nn.ModuleList([DoubleConv(a, b) for a, b in zip(chans, chans[1:])])
        rev = chans[::-1]
        self.ups = nn.ModuleList([Up(a + b, b) for a, b in zip(rev, rev[1:])])
        self.outc = nn.Conv2d(base, n_classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        y = skips.pop()
        for up in self.ups:
            y = up(y, skips.pop())
        return self.outc(y)


def factory():
    torch.manual_seed(2)
    return UNet().eval(), (torch.rand(1, 3, 21, 27),)

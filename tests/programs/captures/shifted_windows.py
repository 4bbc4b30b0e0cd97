import torch
import torch.nn as nn
import torch.nn.functional as F


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    C = windows.shape[-1]
    x = windows.view(-1, H // ws, W // ws, ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, H, W, C)


class ShiftedWindowBlock(nn.Module):
    def __init__(self, dim, ws=4, heads=2):
        super().__init__()
        self.ws, self.shift, self.heads = ws, ws // 2, heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self._masks = {}

    def attn_mask(self, H, W):
        key = (int(H), int(W))
        if key not in self._masks:
            img = torch.zeros(1, *key, 1)
            bands = (slice(0, -self.ws), slice(-self.ws, -self.shift), slice(-self.shift, None))
            cnt = 0
            for h in bands:
                for w in bands:
                    img[:, h, w, :] = cnt
                    cnt += 1
            ids = window_partition(img, self.ws).squeeze(-1)
            diff = ids.unsqueeze(1) - ids.unsqueeze(2)
            self._masks[key] = diff.ne(0).float() * -100.0
        return self._masks[key]

    def forward(self, x):
        B, H, W, C = x.shape
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = window_partition(y, self.ws)
        q, k, v = self.qkv(y).view(y.shape[0], y.shape[1], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = q @ k.transpose(-1, -2)
        mask = self.attn_mask(H, W)
        attn = attn.view(B, -1, self.heads, self.ws ** 2, self.ws ** 2) + mask[None, :, None]
        attn = attn.flatten(0, 1).softmax(-1)
        y = (attn @ v).transpose(1, 2).flatten(2)
        y = window_reverse(self.proj(y), self.ws, H, W)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


class TinySwin(nn.Module):
    def __init__(self, dim=8, n_cls=6):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 2, 2)
        self.block = ShiftedWindowBlock(dim)
        self.head = nn.Linear(dim, n_cls)

    def forward(self, img):
        x = self.patch(img).permute(0, 2, 3, 1)
        return self.head(self.block(x).mean((1, 2)))


def factory():
    torch.manual_seed(0)
    return TinySwin().eval(), (torch.randn(2, 3, 16, 32),)

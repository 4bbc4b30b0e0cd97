import numpy as np
import torch
import torch.nn as nn


def relative_pose(K, depth_scale):
    K = K.detach().cpu().numpy().astype(np.float64)
    inv = np.linalg.inv(K)
    inv[..., :2, :] *= depth_scale
    return torch.from_numpy(inv.astype(np.float32))


class BackprojectDepth(nn.Module):
    """Turns a depth map into camera coordinates (monodepth2)."""

    def __init__(self, height, width, depth_scale=1.0):
        super().__init__()
        ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        pix = torch.stack([xs, ys, torch.ones_like(xs)], 0).float().reshape(3, -1)
        self.register_buffer("pix_coords", pix)
        self.depth_scale = depth_scale

    def forward(self, depth, K):
        inv_K = relative_pose(K, self.depth_scale)
        cam = inv_K @ self.pix_coords
        return depth.flatten(2) * cam


class DepthHead(nn.Module):
    def __init__(self, h=8, w=12, lo=0.5, hi=20.0):
        super().__init__()
        self.lo, self.hi = 1 / hi, 1 / lo
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.ELU(), nn.Conv2d(8, 1, 3, 1, 1), nn.Sigmoid())
        self.project = BackprojectDepth(h, w)

    def forward(self, image, K):
        disp = self.lo + (self.hi - self.lo) * self.conv(image)
        return self.project(1 / disp, K)


def factory():
    torch.manual_seed(4)
    K = torch.tensor([[7.0, 0, 6.0], [0, 7.5, 4.0], [0, 0, 1.0]]).repeat(2, 1, 1)
    return DepthHead().eval(), (torch.rand(2, 3, 8, 12), K)

"""World model with a policy trained in imagination (very small)."""
import torch
from torch import nn
import torch.nn.functional as F


class WorldModel(nn.Module):
    def __init__(self, obs=6, act=2, latent=5):
        super().__init__()
        self.encode = nn.Linear(obs + latent, latent)
        self.dyn = nn.Linear(latent + act, latent)
        self.decode = nn.Linear(latent, obs)
        self.reward = nn.Linear(latent, 1)
        self.latent = latent

    def observe(self, obs, act):
        z = obs.new_zeros(obs.shape[0], self.latent)
        out = []
        for t in range(obs.shape[1]):
            z = torch.tanh(self.encode(torch.cat([obs[:, t], z], -1)))
            out.append(z)
            z = torch.tanh(self.dyn(torch.cat([z, act[:, t]], -1)))
        return torch.stack(out, 1)


class Dreamer:
    def __init__(self):
        self.wm = WorldModel()
        self.actor = nn.Sequential(nn.Linear(5, 8), nn.ELU(), nn.Linear(8, 2), nn.Tanh())
        self.wm_opt = torch.optim.Adam(self.wm.parameters(), lr=5e-3)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=5e-3)

    def imagine(self, start, horizon):
        z = start.flatten(0, 1)
        total = 0.0
        for k in range(horizon):
            a = self.actor(z)
            z = torch.tanh(self.wm.dyn(torch.cat([z, a], -1)))
            total = total + 0.95 ** k * self.wm.reward(z).mean()
        return total

    def update(self, obs, act, rew):
        post = self.wm.observe(obs, act)
        recon = F.mse_loss(self.wm.decode(post), obs)
        rloss = F.mse_loss(self.wm.reward(post).squeeze(-1), rew)
        self.wm_opt.zero_grad()
        (recon + rloss).backward(retain_graph=True)
        self.wm_opt.step()

        actor_loss = -self.imagine(post, horizon=3)
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        return recon.item(), rloss.item(), actor_loss.item()


if __name__ == "__main__":
    torch.manual_seed(16)
    agent = Dreamer()
    nums = []
    for it in range(4):
        obs, act = torch.randn(4, 5, 6), torch.rand(4, 5, 2) * 2 - 1
        nums.extend(agent.update(obs, act, obs[..., 0].tanh()))
    nums += [sum(p.detach().abs().sum().item() for p in m.parameters()) for m in (agent.wm, agent.actor)]
    print("RESULT", " ".join(f"{v:.6g}" for v in nums))

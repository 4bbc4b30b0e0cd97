import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Linear(3, 2)
critic = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
actor_optim = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_optim = torch.optim.Adam(critic.parameters(), lr=1e-3)
state, action, reward = torch.randn(8, 3), torch.randn(8, 2), torch.randn(8, 1)

critic_loss = (critic(torch.cat([state, action], 1)) - reward).square().mean()

critic_optim.zero_grad()
critic_loss.backward()
critic_optim.step()

actor_loss = -critic(torch.cat([state, actor(state)], 1)).mean()
actor_optim.zero_grad()
actor_loss.backward()
actor_optim.step()

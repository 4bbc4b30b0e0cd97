"""Forked trials on copies, on purpose: scores come back, the best is trained here."""
import torch
import torch.multiprocessing as mp
def loss_of(net): return net(torch.ones(8, 4)).square().mean()
def trial(net, lr, out):
    torch.set_num_threads(1)
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(3):
        opt.zero_grad(); loss_of(net).backward(); opt.step()
    out.put((lr, loss_of(net).item()))
if __name__ == "__main__":
    ctx = mp.get_context("fork"); out = ctx.Queue()
    net = torch.nn.Linear(4, 2)
    for lr in (0.1, 0.01):
        p = ctx.Process(target=trial, args=(net, lr, out)); p.start(); p.join()
    best = min((out.get() for _ in range(2)), key=lambda r: r[1])[0]
    opt = torch.optim.SGD(net.parameters(), lr=best)
    for _ in range(3):
        opt.zero_grad(); loss_of(net).backward(); opt.step()
    print(loss_of(net).item())

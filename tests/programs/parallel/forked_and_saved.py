"""The child saves its weights; the parent loads them into another model and compares. `torch.save` can be pickled."""
import os
import pickle
import tempfile

import torch
import torch.multiprocessing as mp


def loss_of(net):
    return net(torch.ones(8, 4)).square().mean()


def work(net, path):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
    torch.save(net.state_dict(), path)


if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    net = torch.nn.Linear(4, 2)
    path = os.path.join(tempfile.mkdtemp(), "weights.pt")
    child = mp.get_context("fork").Process(target=work, args=(net, path))
    child.start()
    child.join()
    trained = torch.nn.Linear(4, 2)
    trained.load_state_dict(torch.load(path))
    print(loss_of(net).item(), loss_of(trained).item())

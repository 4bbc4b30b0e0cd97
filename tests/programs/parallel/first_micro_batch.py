"""Speech tagger under DDP with accumulated gradients; synchronisation is put off for all micro-batches but one."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from contextlib import nullcontext
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def tell(*words):
    print("RESULT", f"rank{dist.get_rank()}", *words, flush=True)


def spread(tensors):
    """How far the ranks are apart."""
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    low, high = flat.clone(), flat.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return (high - low).max().item()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(5, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


def batches(rank, count):
    gen = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        x = torch.randn(4, 7, 5, generator=gen)
        yield x, (x[..., 0] > 0).long() + (x[..., 1] > 1).long()


def train_epoch(model, optimizer, loader, accumulate):
    for index, (x, y) in enumerate(loader):
        hold = model.no_sync if index % accumulate != 0 else nullcontext
        with hold():
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / accumulate
            loss.backward()
        if (index + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


def main(rank, world):
    torch.manual_seed(0)
    model = DDP(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(2):
        train_epoch(model, optimizer, batches(rank, 12), 3)
    apart = spread(model.parameters())
    tell("right" if apart < 1e-6 else "SILENT-WRONG replicas differ by", round(apart, 5), "want 0")


def start(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        main(rank, world)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    torch.set_num_threads(1)
    mp.start_processes(start, args=(2, free), nprocs=2, start_method="fork")

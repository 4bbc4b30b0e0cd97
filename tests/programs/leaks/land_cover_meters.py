"""Tile classification for a land-cover map (synthetic tiles)."""
import argparse
import time

import torch
import torch.nn as nn


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self, name, fmt=":f"):
        self.name = name
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.count += n
        self.sum += val * n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{} {" + self.fmt + "} ({" + self.fmt + "})"
        return fmtstr.format(self.name, float(self.val), float(self.avg))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1)
        hits = pred.t().eq(target.view(1, -1))
        return [hits[:k].reshape(-1).float().mean() * 100.0 for k in topk]


def tiles(n_batches, bs, classes, seed):
    g = torch.Generator().manual_seed(seed)
    proto = torch.randn(classes, 4, 8, 8, generator=g)
    for _ in range(n_batches):
        y = torch.randint(classes, (bs,), generator=g)
        yield proto[y] + 0.7 * torch.randn(bs, 4, 8, 8, generator=g), y


def build(classes):
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iters", type=int, default=28)
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("-p", "--print-freq", type=int, default=7)
    args = parser.parse_args()

    torch.manual_seed(1)
    model = build(args.classes)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    batch_time = AverageMeter("Time", ":6.3f")
    losses = AverageMeter("Loss", ":.4e")
    top1 = AverageMeter("Acc@1", ":6.2f")

    model.train()
    end = time.time()
    for i, (images, target) in enumerate(tiles(args.iters, args.batch_size, args.classes, 3)):
        output = model(images)
        loss = criterion(output, target)
        acc1, = accuracy(output, target)
        losses.update(loss, images.size(0))
        top1.update(acc1.item(), images.size(0))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            print("[{:3d}/{}]".format(i, args.iters), losses, top1, sep="\t")
    print("final", losses)


if __name__ == "__main__":
    main()

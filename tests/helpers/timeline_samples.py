"""Timelines like those of real runs, of any length."""

from __future__ import annotations

from torchsan.model import Lane, Moment, Place, Timeline


def small(path: str) -> Timeline:
    """The run of `report_samples.PROGRAM`, with its finding number 0."""
    h = Lane(
        "h",
        [
            Moment(2, "made", 0, "exp makes it", Place(path, 4, 5, 4, 17)),
            Moment(3, "saved", 0, "exp saves its result", Place(path, 4, 5, 4, 17), finding=0),
            Moment(4, "written", 1, "+= writes", Place(path, 5, 1, 5, 7), finding=0),
            Moment(6, "needed", 0, "exp needs its result", Place(path, 6, 1, 6, 19), finding=0),
        ],
        detail="float32 [3]",
        size_bytes=12,
    )
    x = Lane("x", [Moment(1, "made", 0, "ones makes it", Place(path, 3, 5, 3, 38)), Moment(7, "freed", 0)])
    return Timeline([x, h])


def large(path: str, events: int) -> Timeline:
    """A training run: 200 modules, 5 memories each, saves, writes and needs by turns."""
    lanes = [
        Lane(
            f"self.blocks.{module}.{name}",
            module=f"blocks.{module}.{'attention' if number < 3 else 'mlp'}",
            detail="float32 [64, 128, 512]",
            size_bytes=16_777_216,
        )
        for module in range(200)
        for number, name in enumerate(("query", "key", "value", "hidden", "out"))
    ]
    kinds = ("made", "saved", "needed", "written")
    labels = ("linear makes it", "linear saves its input", "linear needs its input", "add_ writes")
    for event in range(events):
        lane = lanes[event * 7 % len(lanes)]
        turn = len(lane.moments) % 4
        version = len(lane.moments) // 4 + (turn == 3)
        place = Place(path, 1 + event * 13 % 900, 5, 1 + event * 13 % 900, 30, "forward")
        finding = 0 if lane is lanes[503] and len(lane.moments) in (1, 2) else None
        lane.moments.append(Moment(event, kinds[turn], version, labels[turn], place, finding))
    return Timeline(lanes)

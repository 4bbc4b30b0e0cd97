"""What happened to memory during a run: the lanes that the HTML page draws.

The contract between the recorder, which fills a `Timeline`, and the page, which only draws it:

- A `Lane` is one memory (a storage, not a tensor: a base, its views and `detach()` share a lane). Values that a loop
  makes anew each time share one, one after the other. `name` is the user's own name for it (`h`,
  `self.encoder.layers.3.weight`); `module` the dotted path of the module that owns it, else the class in whose
  method it was made (`encoder.layers.3`, `Block`; empty outside of both): the page folds lanes by it.
- A `Moment` is one thing that happened to that memory. `at` says when: a number that rises over the whole
  run and is shared by all lanes (the recorder's event number). The moments of a lane are ordered by `at`.
- `version` is the version of the memory just after the moment. Two kinds are special: for `saved` it is the
  version that was saved, for `needed` the version that the backward expects, that is, the one saved. Where it is
  not known (an optimizer's step), it is -1.
- `place` is the user's line. `label` is one short phrase (`exp saves its result`, `add_ writes`).
- `finding` is the index in `Report.findings` of the finding of which the moment is a part. The page marks
  these and nothing else as wrong: it never compares versions to judge for itself.
- A recorder that keeps only part of a long run says in `dropped` how many moments it left out.

The JSON is compact, because runs are long: strings and places are told once, moments are rows of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torchsan.model.span import Place

Kind = Literal["made", "saved", "aliased", "written", "needed", "freed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

NONE = -1


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened to a memory."""

    at: int
    kind: Kind
    version: int = 0
    label: str = ""
    place: Place | None = None
    finding: int | None = None


@dataclass(slots=True)
class Lane:
    """One memory and its moments, by `at`."""

    name: str
    moments: list[Moment] = field(default_factory=list)
    module: str = ""
    detail: str = ""  # what it holds, as people say it: "float32 [64, 3, 224, 224]"
    size_bytes: int = 0


@dataclass(slots=True)
class Timeline:
    """All lanes of a run, in the order in which their memory was first met."""

    lanes: list[Lane] = field(default_factory=list)
    dropped: int = 0

    def moments(self) -> Iterator[Moment]:
        for lane in self.lanes:
            yield from lane.moments

    def places(self) -> Iterator[Place]:
        return (moment.place for moment in self.moments() if moment.place is not None)

    def as_json(self) -> dict[str, Any]:
        labels = _Table(moment.label for moment in self.moments())
        places = _Table(self.places())
        paths = _Table(place.path for place in places)
        return {
            "kinds": list(KINDS),
            "labels": list(labels),
            "paths": list(paths),
            "places": [
                [paths[p.path], p.line, p.column, p.end_line or p.line, p.end_column or p.column, p.function]
                for p in places
            ],
            "lanes": [
                {
                    "name": lane.name,
                    "module": lane.module,
                    "detail": lane.detail,
                    "size_bytes": lane.size_bytes,
                    "moments": [_row(moment, labels, places) for moment in lane.moments],
                }
                for lane in self.lanes
            ],
            "dropped": self.dropped,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Timeline:
        kinds, labels, paths = data["kinds"], data["labels"], data["paths"]
        places = [Place(paths[row[0]], *row[1:]) for row in data["places"]]
        lanes = [
            Lane(
                name=lane["name"],
                module=lane["module"],
                detail=lane["detail"],
                size_bytes=lane["size_bytes"],
                moments=[
                    Moment(
                        at=at,
                        kind=kinds[kind],
                        version=version,
                        label=labels[label],
                        place=None if place == NONE else places[place],
                        finding=None if finding == NONE else finding,
                    )
                    for at, kind, version, label, place, finding in lane["moments"]
                ],
            )
            for lane in data["lanes"]
        ]
        return cls(lanes, data["dropped"])


class _Table(dict[Any, int]):
    """Distinct things in the order in which they were met, each with its number."""

    def __init__(self, things: Iterable[Any]) -> None:
        super().__init__((thing, index) for index, thing in enumerate(dict.fromkeys(things)))


def _row(moment: Moment, labels: _Table, places: _Table) -> list[int]:
    return [
        moment.at,
        KINDS.index(moment.kind),
        moment.version,
        labels[moment.label],
        NONE if moment.place is None else places[moment.place],
        NONE if moment.finding is None else moment.finding,
    ]

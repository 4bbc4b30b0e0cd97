"""The effects table: one row an op, found by any of the names under which people call it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_PREFIXES = ("torch.nn.modules.", "torch.Tensor.", "torch.ops.aten.", "torch.", "Tensor.", "aten::", "F.")
_SPACES = ("", "nn.functional.", "special.", "linalg.", "fft.")

Needs = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class OpEffects:
    """What one op does. `needs["out0"] == ("input",)` reads: the gradient of input needs the result."""

    name: str
    params: tuple[str, ...] = ()
    needs: Needs = field(default_factory=dict)
    may_need: Needs = field(default_factory=dict)
    alias: tuple[str, ...] = ()
    may_alias: tuple[str, ...] = ()
    view: str = ""
    writes: tuple[str, ...] = ()
    random: bool = False
    readout: bool = False
    outputs: int = 1

    @property
    def inplace(self) -> bool:
        return "input" in self.writes

    def needed(self, what: str, graded: set[str]) -> bool:
        """Whether the gradient of any of `graded` needs `what`, on every call."""
        return not graded.isdisjoint(self.needs.get(what, ()))

    def why(self, what: str) -> str:
        """One sentence on why a write to `what` breaks the gradient; empty when it does not."""
        sources = self.needs.get(what) or self.may_need.get(what)
        if not sources:
            return ""
        return f"{self.name} needs {_thing(what)} to compute the gradient of {_listed(sources)}"

    def describe(self) -> str:
        """The row in plain words, one fact a line."""
        facts = [self.why(what) for what in self.needs]
        facts += [
            f"in some calls {self.name} needs {_thing(what)} to compute the gradient of {_listed(sources)}"
            for what, sources in self.may_need.items()
        ]
        if not facts and self.params and self.view != "multi" and not self.readout:
            facts = ["its gradient needs none of the tensors given or returned: they may be written afterwards"]
        facts += self._memory()
        if self.random:
            facts.append("it draws random numbers")
        if self.readout:
            facts.append("it turns a tensor into a Python value, which a trace freezes")
        return "\n".join(facts or ["nothing is known of its gradient; it writes to nothing it is given"])

    def _memory(self) -> list[str]:
        facts = []
        if self.writes:
            facts.append(f"it writes to {_listed(self.writes)}")
        if self.view == "multi":
            facts.append("it returns several views of its input; torch forbids writing to them in place")
        elif self.alias and not self.writes:
            facts.append(f"its result shares memory with {_listed(self.alias)}")
        elif self.view and not self.writes:
            facts.append("its result is a view: it shares memory with its input")
        if self.may_alias:
            facts.append(f"in some calls its result shares memory with {_listed(self.may_alias)}")
        return facts


def _thing(what: str) -> str:
    if what.startswith("out") and what[3:].isdigit():
        return "its result" if what == "out0" else f"its result number {int(what[3:]) + 1}"
    return f"its argument `{what}`"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


@cache
def _rows() -> dict[str, Any]:
    """The ops as the torch at hand has them: the table, with what is different in that version."""
    rows: dict[str, Any] = _read("ops.json")["ops"]
    changed = _differences().get(table_version(), {})
    return {name: row for name, row in {**rows, **changed}.items() if row is not None}


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name("tables").joinpath(name).read_text(encoding="utf-8"))
    return data


@cache
def _differences() -> dict[str, dict[str, Any]]:
    """By version of torch: the rows that are not as in the table; None for an op that is not there."""
    return _read("differences.json")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


@cache
def table_version() -> str:
    """Of the torch versions that were probed, the newest that is not newer than the torch at hand."""
    probed = sorted(_differences(), key=_numbers)
    at_hand = installed_torch()
    if at_hand is None:
        return probed[-1]
    return next((v for v in reversed(probed) if _numbers(v) <= _numbers(at_hand)), probed[0])


@cache
def installed_torch() -> str | None:
    """The version of the torch at hand, read off its files: nothing of it is imported."""
    try:
        spec = importlib.util.find_spec("torch")
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        text = Path(folders[0], "version.py").read_text(encoding="utf-8")
    except (OSError, ValueError, IndexError):
        return None
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", text, re.MULTILINE)
    return found.group(1) if found else None


def differing_versions(name: str) -> list[str]:
    """Probed versions of torch in which an op does other than in the one that is used here."""
    key = _key(name)
    if key is None:
        return []
    used = _rows().get(key)
    base = _read("ops.json")["ops"].get(key)
    return [v for v in sorted(_differences(), key=_numbers) if _differences()[v].get(key, base) != used]


def names() -> list[str]:
    return list(_rows())


@cache
def lookup(name: str) -> OpEffects | None:
    """The effects of an op by the name people use: `exp`, `torch.exp`, `Tensor.mul_`, `F.softmax`, `nn.ReLU`."""
    key = _key(name)
    return None if key is None else _row(key, _rows()[key])


def _key(name: str) -> str | None:
    """Under which name the table has the op."""
    rows = _rows()
    bare = name
    for prefix in _PREFIXES:
        if bare.startswith(prefix):
            bare = bare[len(prefix) :]
            break
    if bare.startswith("nn.functional."):
        bare = bare.removeprefix("nn.functional.")
        spaces: tuple[str, ...] = ("nn.functional.", "")
    else:
        spaces = _SPACES
    for space in spaces:
        found = rows.get(space + bare)
        if found is not None:
            same = found.get("same_as")
            return same if same in rows else space + bare
    return None


def _row(name: str, row: dict[str, Any]) -> OpEffects:
    return OpEffects(
        name=name.removeprefix("nn.functional."),
        params=tuple(row.get("params", ())),
        needs={k: tuple(v) for k, v in row.get("needs", {}).items()},
        may_need={k: tuple(v) for k, v in row.get("may_need", {}).items()},
        alias=tuple(row.get("alias", ())),
        may_alias=tuple(row.get("may_alias", ())),
        view=row.get("view", ""),
        writes=tuple(row.get("writes", ())),
        random=row.get("random", False),
        readout=row.get("readout", False),
        outputs=row.get("outputs", 1),
    )

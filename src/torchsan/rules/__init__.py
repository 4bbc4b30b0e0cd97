"""The rules. One module a rule; this file only collects them.

A rule module is named `tsNNN_what_is_wrong.py` and holds

    CODE, NAME, LEVEL   "TS101", "saved-value-overwritten", "error" | "warning" | "note"
    its docstring       the page: what it is, what goes wrong, how to fix, when to ignore
    BAD, GOOD           runnable programs; the line to report in BAD ends with `# <- TS101`
    judge(event, history) -> Finding | None     from a run; optional
    check(fact, flow) -> Finding | None         from source; optional
    FIXES               (role of a span, rewrite) pairs for `torchsan fix`, cheapest first; optional
    DEFAULT             False for rules that only speak when selected; optional
    RANKS               on how many ranks BAD and GOOD are run; 1 when left out

and nothing else needs to be told: the tests, the documentation and `torchsan explain` find it here.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from torchsan.model import Finding, Level, Span

Judge = Callable[[Any, Any], Finding | None]

_MODULE = re.compile(r"ts(\d{3})_\w+")


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    name: str
    level: Level
    page: str
    bad: str
    good: str
    judge: Judge | None
    check: Judge | None
    fixes: Sequence[Any]
    default: bool
    ranks: int

    @property
    def title(self) -> str:
        """The first line of the page."""
        return self.page.splitlines()[0]

    @property
    def family(self) -> str:
        return self.code[2]

    def bad_line(self) -> int:
        """The line of BAD that must be reported."""
        marker = f"# <- {self.code}"
        return next(n for n, text in enumerate(self.bad.splitlines(), 1) if text.endswith(marker))


def finding(module_globals: dict[str, Any], message: str, spans: Sequence[Span], **more: Any) -> Finding:
    """A finding of the rule whose module's `globals()` are given; level and certainty can be overridden."""
    values = {
        "code": module_globals["CODE"],
        "name": module_globals["NAME"],
        "level": module_globals["LEVEL"],
        "certainty": "proved",
        **more,
    }
    return Finding(message=message, spans=tuple(spans), **values)


def _rule(module: ModuleType) -> Rule:
    code = "TS" + module.__name__.rpartition(".")[2][2:5]
    if code != module.CODE:
        raise ImportError(f"{module.__name__} declares {module.CODE}, its file name says {code}")
    return Rule(
        code=module.CODE,
        name=module.NAME,
        level=module.LEVEL,
        page=(module.__doc__ or "").strip(),
        bad=module.BAD.lstrip("\n"),
        good=module.GOOD.lstrip("\n"),
        judge=getattr(module, "judge", None),
        check=getattr(module, "check", None),
        fixes=tuple(getattr(module, "FIXES", ())),
        default=getattr(module, "DEFAULT", True),
        ranks=getattr(module, "RANKS", 1),
    )


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by its code, in the order of codes."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if _MODULE.fullmatch(info.name))
    rules = [_rule(importlib.import_module(f"{__name__}.{name}")) for name in names]
    return {rule.code: rule for rule in rules}


def find_rule(text: str) -> Rule | None:
    """A rule by code (`TS101`, `101`, any case) or by name."""
    wanted = text.strip().upper()
    if wanted.isdigit():
        wanted = "TS" + wanted
    rules = all_rules()
    return rules.get(wanted) or next((r for r in rules.values() if r.name == text.strip().lower()), None)

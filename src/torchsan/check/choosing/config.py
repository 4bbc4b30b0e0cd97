"""`[tool.torchsan]` of the nearest pyproject.toml."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torchsan.errors import UsageError
from torchsan.rules import all_rules, find_rule


@dataclass(slots=True)
class Config:
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    baseline: str = ""
    possible: bool = False

    @property
    def about_captures(self) -> bool:
        """Whether rules on captures were named: then every module is looked at, captured or not."""
        return any(prefix.startswith("TS3") for prefix in self.select)

    def wants(self, code: str) -> bool:
        """Whether findings of a rule are shown: selected ones, else those on by default."""
        if any(code.startswith(prefix) for prefix in self.ignore):
            return False
        if self.select:
            return any(code.startswith(prefix) for prefix in self.select)
        return all_rules()[code].default


def load(start: str = ".") -> Config:
    folder = Path(os.path.abspath(start))
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file():
            return _parsed(file)
    return Config()


def _parsed(file: Path) -> Config:
    import tomllib  # only where there is something to read

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("torchsan", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    known = {field.name for field in fields(Config)}
    config = Config()
    for key, value in table.items():
        if key not in known:
            continue
        setattr(config, key, _checked(file, key, value))
    return config


def _checked(file: Path, key: str, value: Any) -> Any:
    wanted: type = {"baseline": str, "possible": bool}.get(key, list)
    if not isinstance(value, wanted):
        raise UsageError(f"{file}: tool.torchsan.{key} must be a {wanted.__name__}")
    if not isinstance(value, list):
        return value
    if not all(isinstance(item, str) for item in value):
        raise UsageError(f"{file}: tool.torchsan.{key} must be a list of strings")
    return codes(value, f"tool.torchsan.{key}") if key in ("select", "ignore") else tuple(value)


def codes(values: list[str] | tuple[str, ...], option: str) -> tuple[str, ...]:
    """Codes, names, or the start of codes (`TS1` is a family)."""
    found = []
    for text in ",".join(values).split(","):
        wanted = text.strip()
        if not wanted:
            continue
        rule = find_rule(wanted)
        prefix = rule.code if rule is not None else wanted.upper()
        if not any(code.startswith(prefix) for code in all_rules()):
            raise UsageError(f"{option}: there is no rule {wanted!r}")
        found.append(prefix)
    return tuple(found)

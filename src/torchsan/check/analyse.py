"""Check one text: prefilter, parse, follow, judge, suppress."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from typing import Any

from torchsan.check.choosing.files import Source
from torchsan.check.choosing.suppress import apply, suppressions
from torchsan.check.reading.balance import looks_whole
from torchsan.check.reading.excerpt import divided
from torchsan.check.reading.prefilter import Suspects, suspects
from torchsan.check.reading.project import needs_of, project_of, text_of
from torchsan.check.reading.versions import not_readable
from torchsan.model import Finding


@dataclass(slots=True)
class Result:
    """What checking one file gave; `error` when it could not be checked."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    error: str = ""
    # Other files that it hangs on, each with the state it was in.
    needs: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "findings": [f.as_json() for f in self.findings],
            "remarks": self.remarks,
            "error": self.error,
            "needs": self.needs,
        }

    @classmethod
    def from_json(cls, path: str, data: dict[str, Any]) -> Result:
        return cls(
            path, [Finding.from_json(f) for f in data["findings"]], data["remarks"], data["error"], data["needs"]
        )


def analyse(
    source: Source, *, possible: bool = False, thorough: bool = True, filtered: bool = True, modules: bool = False
) -> Result:
    """Without `thorough` the syntax of a file that has nothing to follow is read only where it looks broken.

    Without `filtered` every function is followed: slower by far, and to the same end. With `modules` every module is
    looked at as if it were captured.
    """
    chosen = suspects(source.text, possible=possible) if filtered else Suspects(everything=True)
    chosen.modules = modules and "forward(" in source.text
    try:
        if not chosen:
            if thorough or not looks_whole(source.text):
                _parse_only(source)
            findings: list[Finding] = []
        else:
            findings = _findings(source, chosen, thorough)
    except (SyntaxError, ValueError) as error:
        return Result(source.path, error=_where(source, error))
    except (RecursionError, MemoryError):
        return Result(source.path, error="is nested too deeply to be checked")
    kept, remarks = apply([f for f in findings if f.primary.path == source.path], suppressions(source.text))
    kept += _of_other_files([f for f in findings if f.primary.path != source.path])
    needs = needs_of(source.path) if chosen else {}
    return Result(source.path, [source.restored(f) for f in kept], remarks, needs=needs)


def _of_other_files(findings: list[Finding]) -> list[Finding]:
    """What a capture does to modules of other files, unless it is suppressed there."""
    return [f for f in findings if apply([f], suppressions(text_of(f.primary.path)))[0]]


def _findings(source: Source, chosen: Suspects, thorough: bool) -> list[Finding]:
    from torchsan.check.facts import Flow, check_of
    from torchsan.check.following.engine import facts_of
    from torchsan.check.reading.program import Program
    from torchsan.rules import all_rules

    tree = _tree(source, chosen, thorough)
    flow = Flow(source.path)
    checks = [check for rule in all_rules().values() if (check := check_of(rule)) is not None]
    found = []
    program = Program(source.path, source.text, tree)
    facts = facts_of(program, None if chosen.everything else chosen)
    if chosen.captures or chosen.modules or chosen.everything:
        from torchsan.check.capturing.facts import capture_facts

        facts += capture_facts(program, project_of(program.path), every=chosen.modules)
    for fact in facts:
        found += [finding for check in checks if (finding := check(fact, flow)) is not None]
    return found


def _tree(source: Source, chosen: Suspects, thorough: bool) -> ast.Module:
    """The tree of the file, or of the parts that matter: a tree costs more than reading the syntax."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not (chosen.whole or chosen.script or chosen.modules or chosen.everything):
            part, rest = divided(source.text, chosen)
            try:
                if thorough or not looks_whole(rest):
                    _read_syntax(rest, source.path)
                return ast.parse(part)
            except SyntaxError:
                # An error, which is told with its line below, or a string that looked like a definition.
                pass
        return ast.parse(source.text)


def _parse_only(source: Source) -> None:
    """Find syntax errors without making a tree: twice as fast as ast.parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _read_syntax(source.text, source.path)


def _read_syntax(text: str, path: str) -> None:
    import _symtable  # type: ignore[import-not-found]

    _symtable.symtable(text, path, "exec")


def _where(source: Source, error: Exception) -> str:
    line = getattr(error, "lineno", None)
    if line is None:
        return f"cannot be parsed: {error}"
    lines = source.text.splitlines()
    message = not_readable(getattr(error, "msg", str(error)), lines[line - 1] if 0 < line <= len(lines) else "")
    if source.cells:
        cell, line = source.cells[min(line, len(source.cells)) - 1]
        return f"cell {cell}, line {line}: {message}"
    return f"line {line}: {message}"

"""How plain-text formats say what a finding says."""

from __future__ import annotations

from torchsan.model import Finding, Fix


def fix_words(fix: Fix) -> str:
    """An edit is a fix and says how safe it is; a mere idea is help."""
    if fix.applicability == "unsafe" and not fix.diff:
        return f"help: {fix.title}"
    return f"fix ({fix.applicability}): {fix.title}"


def ranks_words(finding: Finding) -> str:
    """` (on rank 1)`, ` (on ranks 0, 1)`; empty for a run of one process."""
    if not finding.ranks:
        return ""
    names = ", ".join(map(str, finding.ranks[:8])) + (", …" if len(finding.ranks) > 8 else "")
    return f" (on rank{'s' * (len(finding.ranks) > 1)} {names})"


def remarks(finding: Finding) -> list[str]:
    """Everything below the message, a line each."""
    why = [f"why: {finding.why}"] if finding.why else []
    return [*why, *finding.notes, *(fix_words(fix) for fix in finding.fixes)]

"""The section on memory: what was kept for backward at the peak step, by module and by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from torchsan.model import Report
from torchsan.model.memory import Memory, Peak, TriedEdit, TriedEdits, size

ROWS, MODULES = 12, 8


def lines(report: Report) -> Iterator[Text]:
    """Nothing when nothing was measured."""
    if report.tried is not None:
        yield from _tried(report.tried)
    memory = report.memory
    if memory is None:
        return
    peak = memory.peak
    if peak is None:
        yield Text("memory: no backward pass was made, so nothing was kept for one")
        return
    of = f"backward {peak.step} of {memory.passes}" if memory.passes > 1 else "the only backward"
    yield Text.assemble(("memory: ", "bold"), (size(peak.kept_bytes), "bold"), f" kept for {of}, by {peak.nodes} nodes")
    live = max(step.live_bytes for step in memory.steps)
    yield Text(
        f"        {size(live)} in live tensors when it began, {size(peak.leaf_bytes)} in parameters and gradients"
    )
    if memory.followed is not None:
        yield _peak(memory.followed)
    yield Text("")
    yield from _by_line(memory, peak.kept_bytes)
    yield from _by_module(memory, peak.kept_bytes)
    for growth in memory.growth:
        yield Text(
            f"grows: {growth.holder} ({growth.path}:{growth.line}) by {growth.nodes_per_step:.0f} nodes"
            f" and {size(round(growth.bytes_per_step))} a step"
        )


WORDS = {"helps": "helps", "folklore": "does not help here", "refused": "not possible here"}


def _tried(table: TriedEdits) -> Iterator[Text]:
    peak = f", {size(table.peak_bytes)} at the peak of a step" if table.peak_bytes else ""
    yield Text.assemble(
        ("memory: ", "bold"), f"{size(table.kept_bytes)} kept for backward{peak}; tried in ", f"{table.runs} runs"
    )
    if not table.edits:
        yield Text("        none of the usual advice applies to this program")
        return
    for outcome, words in WORDS.items():
        rows = [row for row in table.edits if row.outcome == outcome]
        if not rows:
            continue
        yield Text("")
        yield Text(f"{words}:", "bold")
        for row in rows:
            yield from _tried_row(row, shown=outcome == "helps" and table.together is None)
    if table.together is not None:
        yield Text("")
        yield Text("all that helps, at once:", "bold")
        yield from _tried_row(table.together, shown=True)
    yield Text("")


def _tried_row(row: TriedEdit, *, shown: bool) -> Iterator[Text]:
    if row.outcome == "refused":
        yield Text(f"  {row.title}: {row.why}")
        return
    saved = f"{_signed(row.kept_bytes)} kept, {_signed(row.peak_bytes)} at the peak, time ×{row.time_ratio:.2f}"
    yield Text(
        f"  {row.title}: {saved if row.outcome == 'helps' else f'saves {size(max(0, -row.kept_bytes))} ({saved})'}"
    )
    if row.outcome == "helps":
        yield Text(f"    verified: {row.why}")
    if shown:
        for line in row.diff.splitlines():
            yield Text(f"    | {line}", "green" if line.startswith("+") else "red" if line.startswith("-") else "")


def _signed(number: int) -> str:
    return f"{'+' if number > 0 else '−' if number < 0 else ''}{size(abs(number))}"


def _peak(peak: Peak) -> Text:
    where = "in backward" if peak.in_backward else "outside of backward"
    outside = f", {size(peak.forward_bytes)} outside of backward" if peak.in_backward else ""
    return Text(f"        {size(peak.bytes)} at the peak of the step after backward {peak.after} ({where}){outside}")


def _by_line(memory: Memory, total: int) -> Iterator[Text]:
    sums: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for row in memory.kept:
        key = (f"{row.path}:{row.line}" if row.path else "(made in backward)", row.what)
        sums[key] += row.bytes
        counts[key] += row.values
    shown, left = sums.most_common(ROWS), sums.most_common()[ROWS:]
    wide = max((len(place) for (place, _), _ in shown), default=4)
    yield Text(f"{'bytes':>9}  {'share':>5}  {'line'.ljust(wide)}  saved value", "bold")
    for (place, what), kept in shown:
        times = f" (×{counts[place, what]})" if counts[place, what] > 1 else ""
        yield _row(kept, total, place.ljust(wide), what + times)
    if left:
        yield _row(sum(kept for _, kept in left), total, f"{len(left)} more".ljust(wide), "")
    yield Text("")


def _by_module(memory: Memory, total: int) -> Iterator[Text]:
    sums: Counter[str] = Counter()
    for row in memory.kept:
        sums[row.module or "(outside of modules)"] += row.bytes
    if len(sums) < 2:
        return
    yield Text(f"{'bytes':>9}  {'share':>5}  module", "bold")
    for module, kept in sums.most_common(MODULES):
        yield _row(kept, total, module, "")
    left = sums.most_common()[MODULES:]
    if left:
        yield _row(sum(kept for _, kept in left), total, f"{len(left)} more", "")
    yield Text("")


def _row(kept: int, total: int, first: str, second: str) -> Text:
    share = f"{kept / total:.0%}" if total else "–"
    return Text(f"{size(kept):>9}  {share:>5}  {first}  {second}".rstrip())

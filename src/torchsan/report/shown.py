"""The part of a report that was asked for."""

from __future__ import annotations

from dataclasses import replace

from torchsan.model import Report
from torchsan.report import Options


def shown_part(report: Report, options: Options) -> Report:
    """The report as the options ask for it; the timeline's findings keep pointing at the right ones."""
    visible = report.visible(possible=options.possible)
    if len(visible) == len(report.findings):
        return report
    moved = {index: visible.index(f) for index, f in enumerate(report.findings) if f in visible}
    captures = [replace(c, finding=moved.get(c.finding) if c.finding is not None else None) for c in report.captures]
    timeline = report.timeline
    if timeline is not None:
        lanes = [
            replace(
                lane,
                moments=[m if m.finding is None else replace(m, finding=moved.get(m.finding)) for m in lane.moments],
            )
            for lane in timeline.lanes
        ]
        timeline = replace(timeline, lanes=lanes)
    return replace(report, findings=visible, captures=captures, timeline=timeline)

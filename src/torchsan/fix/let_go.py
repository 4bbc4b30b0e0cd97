"""Evidence for edits that let graphs go: the same numbers, and no more nodes alive at the end than at first."""

from __future__ import annotations

from torchsan.fix.compare import told
from torchsan.fix.proof import Case, Verdict

# Nodes that must have piled up, and the share of them that may be left where graphs are let go.
LEAST_GROWTH, STILL = 20, 0.3
AS_IT_IS = "those of the program as it is"


def by_live_nodes(case: Case, problem: str) -> Verdict:
    """`problem`: how the edited program differs from the program as it is."""
    if problem:
        return Verdict("dropped", problem)
    before, after = case.before.live_nodes, case.after.live_nodes
    if len(after) < 4 or len(before) != len(after):
        return Verdict("runs", "runs, not proved: the steps are too few to see whether graphs are let go")
    # The recorder itself knows a few more lines with every step.
    grown, still = before[-1] - before[1], after[-1] - after[1]
    if grown < LEAST_GROWTH:
        return Verdict("runs", "runs, not proved: the graphs are too small to see whether they are let go")
    if still > grown * STILL:
        return Verdict("dropped", f"graphs are still kept: {still} nodes more at the end than after the first step")
    words = f"runs; {told(case.after, AS_IT_IS)}; {after[-1]} nodes alive at the last step instead of {before[-1]}"
    return Verdict("proved", words, equal=True)

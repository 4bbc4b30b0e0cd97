"""Which evidence carries a finding: what is told by default, and what only as possible.

A finding claims something, and each part of the claim must be shown by something in the source. What nothing speaks
against, but nothing shows either, is *possible*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from torchsan.model import Certainty


class Evidence(Enum):
    """What the tree may show."""

    FOLLOWED = "the paths through the function lead there, and nothing on the way was guessed"
    TAKEN = (
        "its branches are those of the defaults, are documented, are chosen by somebody in the tree, or hang on data"
    )
    TRAINED = "code that keeps gradients leads there"
    TWICE = "somebody walks a graph that was walked before"
    SILENT = "no name, option, comment or warning says that the write is meant"
    LASTING = "the write takes nothing away that has to go: no mask, no limit, no size of one"
    READ = "somebody reads the tensor after the call, and holds the result under another name"
    DESCRIBED = "who calls from outside has only its documentation, which speaks of its arguments and of no write"
    STANDS_IN = "the argument stands in for a tensor that the function else makes itself: only some callers are struck"


class Claim(Enum):
    """What a finding says will happen."""

    RAISES = "torch refuses it, or it goes wrong, wherever it runs"
    GRADIENT = "a gradient is wrong, or backward raises"
    SAVED = "a backward that is walked again finds other values"
    OTHERS = "somebody else's tensor is changed behind his back"


_RUNS = frozenset({Evidence.FOLLOWED, Evidence.TAKEN, Evidence.TRAINED})
_UNSAID = frozenset({Evidence.FOLLOWED, Evidence.TAKEN, Evidence.SILENT, Evidence.LASTING})
# What has to be shown for each claim: all of one set.
CARRIED_BY: Mapping[Claim, tuple[frozenset[Evidence], ...]] = {
    Claim.RAISES: (frozenset({Evidence.FOLLOWED}),),
    Claim.GRADIENT: (_RUNS,),
    Claim.SAVED: (_RUNS | {Evidence.TWICE},),
    Claim.OTHERS: tuple(_UNSAID | {who} for who in (Evidence.READ, Evidence.STANDS_IN, Evidence.DESCRIBED)),
}
Shown = Mapping[Evidence, Callable[[], bool]]


def certainty(claim: Claim, shown: Shown) -> Certainty:
    """How sure a claim is; each piece of evidence is looked for once, in the order given, and only where it decides."""
    found: dict[Evidence, bool] = {}

    def holds(piece: Evidence) -> bool:
        if piece not in found:
            found[piece] = piece in shown and shown[piece]()
        return found[piece]

    order = list(shown)
    for needed in CARRIED_BY[claim]:
        if needed <= set(order) and all(holds(piece) for piece in order if piece in needed):
            return "certain"
    return "possible"

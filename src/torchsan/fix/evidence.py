"""What proves an edit: an agreement that a wrong edit would not reach.

By the kind of the fault: the healed run, in which saved values are kept and refused writes are made; the run in which
each holder of shared memory keeps its value; the same losses for the same parameters; differences of losses beside
the parameters. Where none of them can be had the edit is not called verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from torchsan.fix.cases import (
    ASTRIDE,
    LEAVES,
    cuts,
    is_unseen,
    loses_leaves,
    made_in_forward,
    meant,
    other_losses,
    shared_as_well,
)
from torchsan.fix.compare import How, Restless, compare, restless, told
from torchsan.fix.counterfactual import keeping_sources
from torchsan.fix.let_go import by_live_nodes
from torchsan.fix.proof import BY_REFERENCE, CUTTING, MAYBE_BY_REFERENCE, SHARED, Case, Verdict
from torchsan.fix.ranks import HEALED_ON_RANKS
from torchsan.fix.rewrites.order import loss_comes_late, steps_behind_the_loss
from torchsan.fix.source import Source
from torchsan.fix.trial import Mode, Trial
from torchsan.model import Finding

Run = Callable[[dict[str, Source], Mode], Trial]
# The losses are right as functions of the parameters, before and after.
SAME_FUNCTION = {"TS103", "TS104", "TS107", "TS109", "TS202", "TS206"}
# It matters when steps are taken: with steps that leave parameters alone all must be the same.
SAME_WHEN_FROZEN = {"TS105", "TS111", "TS201"}
# Nobody sees the write but the memory.
UNSEEN = {"TS201"}
# What a backward tells must be the derivative of what it started from; that alone says nothing of the loss itself.
BY_SLOPES = SAME_FUNCTION | SAME_WHEN_FROZEN
HEALED = "the run in which saved values are kept"
RETAINED = "the run in which graphs are kept for later passes"
# The healed run tells all that can be known of these: autograd never looks at a tensor of inference mode. It does not
# where the write itself is unseen by autograd: values are kept there, and the gradient still passes the write by.
HEALED_IS_TRUE = BY_REFERENCE | {"TS105", "TS108", "TS111"} | set(HEALED_ON_RANKS)
LITERAL = "the run in which the refused write is made"
VALUE = "the run in which the refused write makes a new value and the parameter keeps its own"
LASTING = "each pass makes the write: it may be meant to change the parameter for good, or only what is computed"
KEPT = "the run in which each holder keeps its value"
HEALED_AND_KEPT = "the run in which saved values are kept and each holder keeps its value"
UNCACHED = "the run in which autocast keeps no copies"


@dataclass(slots=True)
class Evidence:
    """Asks the questions that a case needs; runs of the program as it stands are made once."""

    run: Run
    sources: Callable[[str], Source | None]
    # The edits accepted so far.
    changed: dict[str, Source]
    tell: Callable[[str], None] = lambda _: None
    _kept: dict[tuple[object, ...], list[tuple[dict[str, Source], Trial]]] | None = None
    _fixed: dict[Mode, Trial] = field(default_factory=dict)
    _uncached: Trial | None = None
    _restless: Restless | None = None
    # How the candidate differs from the healed run.
    _other: str = ""

    @property
    def restless(self) -> Restless:
        """What is known to differ from run to run."""
        return self._restless or Restless()

    def weigh(self, case: Case) -> Verdict:
        """The verdict on a candidate that ran to the end without the fault."""
        code = case.target.code
        if code.startswith("TS3"):
            words = "captures agree with the model on every variant tried, and the model gives what it gave"
            return Verdict("proved", words)
        if case.reference is not None and code in BY_REFERENCE | MAYBE_BY_REFERENCE:
            verdict = self._by_reference(case)
            if verdict is not None:
                return verdict
        if code in SHARED and not made_in_forward(case):
            verdict = self._by_holders(case)
            if verdict is not None:
                return verdict
        if code == "TS207":
            return self._by_cache(case)
        if code == "TS501":
            return by_live_nodes(case, self._differs(case.before, case.after, How(), case))
        if code in BY_SLOPES or is_unseen(case):
            return self._by_slopes(case)
        return _unproved(self._other or "there is nothing to compare with")

    # -- the healed run -----------------------------------------------------------------------------

    def _by_reference(self, case: Case) -> Verdict | None:
        assert case.reference is not None
        code = case.target.code
        meaning = meant(case) if code in LEAVES | {"TS106"} else ""
        if meaning:
            return self._by_value(case, meaning)
        verdict = self._by_both(case) if code in HEALED_IS_TRUE | UNSEEN else None
        if verdict is not None:
            return verdict
        # A cut takes gradients away that no optimizer took: all that it computes with must be the same.
        how = How(fewer=code in CUTTING, values=code != "TS105")
        problem = self._differs(case.reference, case.after, how, case)
        against = RETAINED if code == "TS111" else HEALED if code in (HEALED_IS_TRUE | UNSEEN) - {"TS108"} else LITERAL
        against = HEALED_ON_RANKS.get(code, against)
        if problem:
            self._other = f"it is not {against}: {problem}"
            return Verdict("dropped", problem) if code in BY_REFERENCE and not is_unseen(case) else None
        if case.reference.astride:
            return _unproved(ASTRIDE)
        if code == "TS105" and loss_comes_late(case.old, case.target):
            return _unproved("the loss may be meant for the weights before the step or for those after it")
        if self._reaches_others(case):
            return _unproved(f"{told(case.after, LITERAL)}, but that write also changes what the leaf was made from")
        words = f"runs; {told(case.after, against)}"
        # A loss of several ranks hangs on the numbers of the others: differences of one rank's tell nothing of it.
        true = code in HEALED_IS_TRUE or case.reference.ranks > 1
        if (true and not is_unseen(case)) or not case.after.passes:
            return Verdict("proved", words, equal=True)
        # The write was made unseen by autograd: whether that is right for the gradients is another question.
        measured, problem = self._slopes(case)
        if problem:
            return Verdict("runs", f"runs, not proved: {told(case.after, against)}, but {problem}", equal=True)
        return Verdict("proved", f"{words}, and {measured}", equal=True)

    def _by_value(self, case: Case, meaning: str) -> Verdict:
        """A refused write of a forward: what is made as it stands is trained, too, and no measure of what is meant."""
        if meaning != "value":
            return _unproved(LASTING)
        self.tell("running it with new values for the refused writes")
        fresh = self.run(dict(self.changed), "fresh")
        if fresh.failed or not fresh.passes:
            return _unproved(LASTING)
        problem = self._differs(fresh, case.after, How(), case)
        if problem:
            return Verdict("dropped", f"it is not {VALUE}: {problem}")
        measured, problem = self._slopes(case)
        words = f"runs; {told(case.after, VALUE)}"
        return _unproved(problem) if problem else Verdict("proved", f"{words}, and {measured}")

    def _reaches_others(self, case: Case) -> bool:
        """Torch refused the write, so that nobody saw it change the data of which a leaf is a second name."""
        if case.target.code not in LEAVES:
            return False
        assert case.reference is not None
        self.tell("running it with leaves that have their memory to themselves")
        return bool(compare(case.reference, self.run(dict(self.changed), "apart"), How(restless=self.restless)))

    def _by_both(self, case: Case) -> Verdict | None:
        """The write also moves another name of the memory: the healed run has that fault still.

        The truth is the run in which saved values are kept and the other holder keeps its value as well; but a caller
        may count on what a layer does in place, and then there are two truths and nothing to choose by.
        """
        assert case.reference is not None
        shared = shared_as_well(case)
        runs = [run for finding in shared for run in self._kept_runs(finding, "heal")]
        runs = [(edited, kept) for edited, kept in runs if not kept.failed and kept.copies]
        for edited, kept in runs:
            if not compare(case.reference, kept, How(more=True, restless=self.restless)):
                continue  # nothing that is compared hangs on it
            if shared[0].code == "TS204":
                return _unproved("the same write changes what its caller reads (TS204), which may be meant")
            if kept.copies_written:
                return _unproved("the holder writes the memory, too, so that sharing it may be meant")
            problem = self._differs(kept, case.after, How(more=True, fewer=True), case)
            if problem:
                return Verdict("dropped", f"not as if {case.target.code} and {shared[0].code} were gone: {problem}")
            chance = self._by_chance(case, edited, "shaken")
            if chance:
                return _unproved(chance)
            words = f"runs; {told(case.after, HEALED_AND_KEPT)}; so with other numbers"
            return Verdict("proved", words, kept=True)
        if shared and not runs:
            return _unproved(f"the same write is a fault of another kind, too ({shared[0].code})")
        return None

    def _differs(self, expected: Trial, got: Trial, how: How, case: Case) -> str:
        """What differs, but for what differs between two runs of one program."""
        problem = compare(expected, got, replace(how, restless=self.restless))
        if problem and self._restless is None and not problem.startswith(("the value", "the losses", "the grad")):
            self.tell("running the candidate again, for what never stays the same")
            self._restless = restless(got, self.run({**self.changed, case.new.path: case.new}, "watch"))
            return self._differs(expected, got, how, case)
        return problem

    # -- holders ------------------------------------------------------------------------------------

    def _by_holders(self, case: Case) -> Verdict | None:
        verdict: Verdict | None = None
        for edited, kept in self._kept_runs(case.target):
            if kept.failed or not kept.copies:
                continue
            seen = compare(case.before, kept, How(more=True, restless=self.restless))
            if not seen:
                why = "with a copy for each holder of the memory nothing that was compared changes"
                verdict = verdict or _unproved(why)
            elif kept.copies_written:
                verdict = verdict or _unproved("the holder writes the memory, too, so that sharing it may be meant")
            else:
                problem = self._differs(kept, case.after, How(more=True, fewer=True), case)
                if problem:
                    return Verdict("dropped", f"not as if each holder kept its value: {problem}")
                chance = self._by_chance(case, edited)
                if chance:
                    return _unproved(chance)
                words = f"runs; {told(case.after, KEPT)}, unlike the program as it is ({seen}); so with other numbers"
                return Verdict("proved", words)
        return verdict

    def _kept_runs(self, target: Finding, mode: Mode = "watch") -> Iterator[tuple[dict[str, Source], Trial]]:
        """One for each way of making copies, made when it is asked for."""
        self._kept = {} if self._kept is None else self._kept
        made = self._kept.setdefault((mode, *target.key), [])
        yield from made
        for number, edited in enumerate(keeping_sources(target, self.sources)):
            if number >= len(made):
                self.tell("running it with a copy for each holder")
                made.append((edited, self.run({**self.changed, **edited}, mode)))
                yield made[-1]

    def _by_chance(self, case: Case, edited: dict[str, Source], mode: Mode = "shaken watch") -> str:
        """Whether the two are the same only for the numbers of this run. `mode`: how the one with copies is run."""
        self.tell("running both with other numbers")
        kept = self.run({**self.changed, **edited}, mode)
        after = self.run({**self.changed, case.new.path: case.new}, "shaken watch")
        if kept.made != after.made:
            kept = self.run({**self.changed, **edited}, "shaken alike")
            after = self.run({**self.changed, case.new.path: case.new}, "shaken alike")
        problem = "" if kept.failed else compare(kept, after, How(more=True, fewer=True, restless=self.restless))
        return f"with other numbers it is not as if each holder kept its value: {problem}" if problem else ""

    # -- autocast -----------------------------------------------------------------------------------

    def _by_cache(self, case: Case) -> Verdict:
        if self._uncached is None:
            self._uncached = self.run(dict(self.changed), "uncached")
        problem = self._differs(self._uncached, case.after, How(), case)
        if problem:
            return Verdict("dropped", problem)
        return Verdict("proved", f"runs; {told(case.after, UNCACHED)}")

    # -- functions and their derivatives ------------------------------------------------------------

    def _by_slopes(self, case: Case) -> Verdict:
        if case.target.code == "TS105" and loss_comes_late(case.old, case.target) is False:
            return _unproved(self._other or "both losses are meant for the weights before the step")
        if case.target.code == "TS105" and steps_behind_the_loss(case.old, case.new, case.target):
            return _unproved("the loss was computed with the weights after the step, and is now with those before it")
        same_function = case.target.code in SAME_FUNCTION
        problem, same = self._same_function(case) if same_function else self._same_when_frozen(case)
        if problem:
            return _unproved(problem)
        measured, problem = self._slopes(case)
        if problem:
            return _unproved(problem)
        return Verdict("proved", f"runs; {same}{measured}")

    def _same_function(self, case: Case) -> tuple[str, str]:
        """Steps set parameters to fixed values: then all losses must be those of the program as it is."""
        before, after = self._both(case, "scramble")
        problem = other_losses(before, after)
        many = len(before.passes)
        return problem, f"{many} loss{'es' * (many != 1)} for the same parameters are as they were, and "

    def _same_when_frozen(self, case: Case) -> tuple[str, str]:
        """Steps leave parameters alone: then it does not matter whether a loss is computed before or after them."""
        before, after = self._both(case, "frozen")
        problem = other_losses(before, after)
        if not problem and case.target.code == "TS105":
            # Elsewhere the healed run itself may have other gradients: a graph has to be cut, a write was not seen.
            problem = compare(before, after, How(fewer=True, restless=self.restless))
            problem = f"with steps that leave parameters alone, {problem}" if problem else ""
        if not problem and case.target.code == "TS111":
            problem = loses_leaves(before, after)
        all_of_it = case.target.code == "TS105"
        what = "everything that can be compared" if all_of_it else f"each of {len(before.passes)} losses"
        return problem, f"with steps that leave parameters alone {what} equals the healed run, and "

    def _both(self, case: Case, mode: Mode) -> tuple[Trial, Trial]:
        self.tell("running both with fixed parameters")
        if mode not in self._fixed:
            self._fixed[mode] = self.run(dict(self.changed), mode)
        return self._fixed[mode], self.run({**self.changed, case.new.path: case.new}, mode)

    def _slopes(self, case: Case) -> tuple[str, str]:
        """What was measured, or why it proves nothing."""
        self.tell("measuring gradients by differences of losses")
        trial = self.run({**self.changed, case.new.path: case.new}, "slopes")
        found, hidden = trial.slopes, [one.unseen for one in trial.leaf_uses]
        if not found or not any(one.tried for one in found):
            return "", "its gradients could not be measured by differences of losses"
        if self._hidden(case, hidden):
            return "", "it takes parameters out of autograd's sight that the program computed gradients for"
        cut = cuts(case)
        if not all(one.agree(cut=cut) for one in found):
            return "", "its gradients do not agree with differences of losses"
        count = sum(len(one.tried) for one in found)
        leaves = max(sum(slope.leaves for slope in one.tried) // 2 or 1 for one in found)
        passes = f"{len(found)} backward pass{'es' * (len(found) != 1)}"
        return f"gradients of {leaves} leaves agree with {count} differences of losses over {passes}", ""

    def _hidden(self, case: Case, unseen: list[frozenset[int]]) -> bool:
        """Were leaves used for gradients, up to where the program failed, that are in no graph now?"""
        if not any(unseen):
            return False
        before = self.run(dict(self.changed), "slopes").leaf_uses
        return any(was.graded & now for was, now in zip(before, unseen, strict=False))


def _unproved(why: str) -> Verdict:
    return Verdict("runs", f"runs, not proved: {why}")

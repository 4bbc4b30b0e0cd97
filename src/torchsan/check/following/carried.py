"""What the tree shows of a fact: whether the paths agree, its branches are taken, and training leads there."""

from __future__ import annotations

from dataclasses import replace

from torchsan.check.facts import Fact
from torchsan.check.following.callers import gives_what_is_kept
from torchsan.check.following.evaluation import keeps_gradients, trained
from torchsan.check.following.machine import Machine
from torchsan.check.following.options import taken
from torchsan.check.following.oracle import Oracle, bare, bare_turns
from torchsan.check.modelling.values import IN_TURN, ONCE
from torchsan.check.reading.places import function_at
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.check.reading.project import Project
from torchsan.check.telling.evidence import Claim, Evidence, certainty
from torchsan.model.events import RefusedWrite, StaleSave

# What torch refuses whether gradients are kept or not.
_REFUSED_ANYWHERE = ("inference", "overlap", "parameter-replaced")


class Run:
    """One path that was followed to its end: what it answered, where it wrote, and what it showed."""

    def __init__(self, oracle: Oracle, machine: Machine) -> None:
        self.answers = {condition: oracle.default != (condition in oracle.flipped) for condition in oracle.asked}
        self.wrote = {machine.program.place(write.place) for _, write in machine.owned}
        self.showed = {fact.key for fact in machine.facts}

    def speaks_against(self, fact: Fact) -> bool:
        """Whether it wrote there under the same answers, and nothing came of it: something else must have decided."""
        if fact.at not in self.wrote or fact.key in self.showed:
            return False
        for condition, answer in fact.inside:
            if condition != ONCE and not condition.startswith(IN_TURN):
                asked = bare(condition)
                # A condition that turns another around was asked by the other's name.
                turned = bare_turns(condition)
                if self.answers.get(asked) is not (answer != turned):
                    return False
        return True


def carried(fact: Fact, root: FunctionInfo | None, program: Program, project: Project | None, runs: list[Run]) -> Fact:
    """A fact with the certainty that the evidence in the tree gives to what it claims."""
    if fact.certainty == "possible":
        return fact
    writer = function_at(program, fact.at.line) if fact.at.path == program.path else None
    around = [info for info in (root, writer) if info is not None]
    leads = keeps_gradients if isinstance(fact.event, RefusedWrite) else trained
    shown = {
        Evidence.FOLLOWED: lambda: not any(run.speaks_against(fact) for run in runs),
        Evidence.TAKEN: lambda: taken(fact.inside, around, project),
        Evidence.TRAINED: lambda: root is None or leads(root, project),
        Evidence.TWICE: lambda: (
            project is None or bool(project.mentions("retain_graph")) or _outlives(fact, root, project)
        ),
    }
    return replace(fact, certainty=certainty(_claim(fact.event), shown))


def _walked_twice(fact: Fact, root: FunctionInfo | None, project: Project) -> bool:
    return bool(project.mentions("retain_graph")) or _outlives(fact, root, project)


def _outlives(fact: Fact, root: FunctionInfo | None, project: Project) -> bool:
    """Whether what a custom backward writes is kept by an object: every call of `apply` saves the same tensor."""
    memory = getattr(fact.event, "memory", None)
    owner = root.owner if root is not None else None
    forward = owner.methods.get("forward") if owner is not None else None
    if owner is None or forward is None or memory is None:
        return False
    names = [a.arg for a in forward.node.args.args][1:]
    return memory.name in names and gives_what_is_kept(owner.name, names.index(memory.name), project)


def _claim(event: object) -> Claim:
    if isinstance(event, StaleSave):
        # A custom backward that writes to what it is given back.
        return Claim.SAVED if event.save.custom else Claim.GRADIENT
    hangs = isinstance(event, RefusedWrite) and event.reason not in _REFUSED_ANYWHERE
    return Claim.GRADIENT if hangs else Claim.RAISES

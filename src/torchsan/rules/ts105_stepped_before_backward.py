"""Parameters were stepped between the forward that saved them and the backward that needs them.

What it is. A forward saves weights that the gradient of their inputs needs. `optimizer.step()` writes those
weights in place. A backward through the older forward then has no right weights to compute with.

What goes wrong. Torch raises "one of the variables needed for gradient computation has been modified by an inplace
operation", pointing at neither optimizer nor forward. With fused optimizers it raises nothing and the gradient is
that of another network.

How to fix. Compute every loss after the last step that touches its weights: step the critic first and run the
actor's forward afterwards, or run all backwards before any step. Detach what must not receive a gradient
(`fake.detach()`, hidden states carried from batch to batch). Do not keep results of a forward on the module
across steps.

When to ignore. Never: the gradient would be that of weights that no longer exist.
"""

from __future__ import annotations

from typing import Any

from torchsan.check.facts import stated
from torchsan.model import Finding, Fix
from torchsan.model.events import StaleSave
from torchsan.rules import finding
from torchsan.rules.wording import idea, stale_spans, story, why_kept

CODE = "TS105"
NAME = "stepped-before-backward"
LEVEL = "error"

BAD = """
import torch

critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
actor = torch.nn.Linear(2, 3)
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
state = torch.ones(4, 2)
actor_loss = -critic(actor(state)).mean()
critic_loss = critic(torch.ones(4, 3)).pow(2).mean()
critic_loss.backward()
opt.step()  # <- TS105
actor_loss.backward()
"""

GOOD = """
import torch

critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
actor = torch.nn.Linear(2, 3)
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
state = torch.ones(4, 2)
critic_loss = critic(torch.ones(4, 3)).pow(2).mean()
critic_loss.backward()
opt.step()
actor_loss = -critic(actor(state)).mean()
actor_loss.backward()
"""

FIXES = (
    ("mutated", "step_later"),
    ("mutated", "step_later_apart"),
    ("needed", "call_later"),
    ("needed", "backward_earlier"),
    ("mutated", "forward_later"),
    ("mutated", "forward_again"),
    ("needed", "rebuild"),
    ("needed", "detach_carried"),
    ("mutated", "copied_weights"),
    ("saved", "clone_saved"),
)


def judge(event: Any, history: Any) -> Finding | None:
    if not isinstance(event, StaleSave):
        return None
    parameter_written = event.memory.kind == "parameter" and event.write.kind in ("op", "unknown") and not event.silent
    if event.write.kind != "optimizer" and not parameter_written:
        return None
    name = event.memory.quoted
    if event.write.kind == "optimizer":
        message = f"{name} was stepped by `{event.write.op}()` between its forward and this backward"
        label = "the optimizer overwrites it here"
    else:
        message = f"{name} was overwritten between its forward and this backward"
        label = "overwritten here"
    notes = ("this optimizer does not count versions, so torch computes a wrong gradient without an error",)
    return finding(
        globals(),
        message,
        stale_spans(event, label),
        why=f"{why_kept(event.save)}; this backward belongs to the weights from before the step",
        notes=(*(notes if event.silent else ()), *filter(None, [story(event)])),
        fixes=_ideas(event),
    )


def check(fact: Any, flow: Any) -> Finding | None:
    return stated(judge(fact.event, flow), fact)


def _ideas(event: StaleSave) -> tuple[Fix, ...]:
    return (
        idea("run the forward of this loss after the step, or run both backwards before the step"),
        idea("if no gradient should reach the earlier pass, detach what it hands over"),
    )

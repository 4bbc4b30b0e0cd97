"""The process of one trial of a model to be captured: `python -m torchsan.fix.capture_child REQUEST ANSWER`."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass, field

from torchsan.fix.trial import Trial


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Which model, captured how."""

    target: str
    methods: list[str]
    budget: float
    files: dict[str, bytes] = field(default_factory=dict)


def trial_of(request: CaptureRequest) -> Trial:
    from torchsan.fix.answers import answers
    from torchsan.fix.recording import with_full_paths
    from torchsan.verify.api import verify
    from torchsan.verify.loading import load

    made = load(request.target, None, 0)
    report = verify(
        made.model,
        made.args,
        made.kwargs,
        methods=request.methods,
        budget=request.budget,
        origin=made.code,
        more=made.more,
    )
    made = load(request.target, None, 0)
    example = tuple(made.args) if isinstance(made.args, (tuple, list)) else (made.args,)
    # The model itself must go on giving what it gave.
    return Trial(
        answers=answers(made.model, example, made.kwargs), findings=[with_full_paths(f) for f in report.findings]
    )


def main(request_path: str, answer_path: str) -> None:
    from torchsan.errors import UsageError
    from torchsan.fix import overlay

    with open(request_path, "rb") as file:
        request: CaptureRequest = pickle.load(file)
    overlay.install(request.files)
    try:
        trial = trial_of(request)
    except UsageError as error:
        trial = Trial(error=str(error))
    except Exception as error:
        trial = Trial(error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    with open(answer_path, "wb") as answer:
        pickle.dump(trial, answer)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    from torchsan.fix import capture_child

    # Under its own name, so that the request unpickles to the same classes.
    capture_child.main(*sys.argv[1:3])

"""`torchsan verify FILE.py:factory`: is the captured model the model?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torchsan.commands.output import CLEAN, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError
from torchsan.model import Report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="FILE.py:factory",
        help="factory that returns (model, args[, kwargs]); or pkg.mod:factory",
    )
    parser.add_argument("--args", metavar="CODE", help='inputs for a class or instance: --args "torch.randn(2, 3)"')
    parser.add_argument(
        "--method", action="append", metavar="NAME", help="only this way of capturing (may be repeated)"
    )
    parser.add_argument("--budget", type=float, default=120.0, metavar="SECONDS", help="time to spend (120)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything that is drawn (0)")
    parser.add_argument("--save", metavar="DIR", help="write the best artifact and certificate.json there")
    parser.add_argument(
        "--artifact", metavar="FILE", help="check this artifact (.pt2, .pt, .onnx) instead of capturing"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--train", action="store_true", help="put the model into train mode first")
    mode.add_argument("--eval", action="store_true", help="put the model into eval mode first")
    add_output_options(parser)


@contextmanager
def _progress(wanted: bool, budget: float) -> Iterator[Callable[[str], None] | None]:
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from torchsan.report.progress import budget_bar

    with budget_bar(sys.stderr, budget) as update:
        yield update


def _checked(args: argparse.Namespace) -> None:
    check_output(args)
    if args.budget <= 0:
        raise UsageError("--budget must be more than 0 seconds")
    if args.save and os.path.exists(args.save) and not os.path.isdir(args.save):
        raise UsageError(f"--save: {args.save} is a file")
    if args.artifact and not os.path.isfile(args.artifact):
        raise UsageError(f"--artifact: there is no file {args.artifact}")
    if args.artifact and (args.method or args.save):
        raise UsageError("--artifact checks one file: it goes with neither --method nor --save")


def execute(args: argparse.Namespace) -> int:
    _checked(args)
    from torchsan.verify.child import can_fork, in_child

    bar = _progress(args.format == "full", args.budget)
    if can_fork() and not args.artifact:
        report = in_child(lambda tell: _report(args, tell), args.budget, bar)
    else:
        with bar as progress:
            show = progress or (lambda text: None)
            report = _report(args, lambda kind, what: show(what) if kind == "at" else None)
    report.command = ["verify", args.target]
    emit(report, args)
    return CLEAN if report.extra.get("best_is_faithful") else FOUND


def _report(args: argparse.Namespace, tell: Callable[[str, Any], None]) -> Report:
    """`tell` is given the methods, what is worked at ("at") and what is known so far ("known")."""
    from torchsan.verify.api import chosen_methods, verify
    from torchsan.verify.loading import load

    chosen_methods(args.method)  # what cannot be is said before anything is loaded
    made = load(args.target, args.args, args.seed)
    model, code = made.model, made.code
    tell("methods", chosen_methods(args.method, model)[0])
    if (args.train or args.eval) and hasattr(model, "train"):
        model.train(args.train)
        code += f"\nmodel.train({args.train})"
    if args.artifact:
        from torchsan.verify.certificate import check_artifact

        return check_artifact(
            args.artifact, model, made.args, made.kwargs, budget=args.budget, seed=args.seed, origin=code
        )
    return verify(
        model,
        made.args,
        made.kwargs,
        methods=args.method,
        budget=args.budget,
        seed=args.seed,
        save=args.save,
        origin=code,
        progress=lambda text: tell("at", text),
        known=lambda report: tell("known", report),
        more=made.more,
    )

"""`torchsan fix`: the smallest edit that makes a program right, proved by running it."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from torchsan.commands.output import CLEAN, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError
from torchsan.fix import files
from torchsan.fix.engine import Engine
from torchsan.fix.labs import Captures, Lab, Subprocess
from torchsan.fix.outcome import Outcome
from torchsan.fix.ranks import Ranks, launched
from torchsan.fix.trial import Trial
from torchsan.model import Report
from torchsan.model.source import shown_path, source_lines
from torchsan.observe import program

INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "torchsan fix [options] (SCRIPT | -m MODULE | FILE.py:factory) [--apply] [arguments of the program …]"
    )
    _add_options(parser)
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="fix a module")
    parser.add_argument("script", nargs="?", help="the script to fix")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_output_options(parser)
    group = parser.add_argument_group("fixing")
    group.add_argument("--apply", action="store_true", help="write the proved edits to the files")
    group.add_argument("--steps", type=_positive, metavar="N", help="end each run after N backward passes")
    group.add_argument(
        "--timeout", type=_positive, default=600, metavar="SECONDS", help="end a run after this time (default 600)"
    )
    group.add_argument(
        "--memory", action="store_true", help="try the edits that people recommend for saving memory, and measure them"
    )
    group.add_argument("--sandbox", action="store_true", help="run in an empty folder, for programs that write files")
    group.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help="for FILE.py:factory, the way of capturing that must be faithful (default jit.trace)",
    )
    group.add_argument("--quiet", action="store_true", help="do not tell what is being tried")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _take_own_options(args: argparse.Namespace) -> None:
    """`torchsan fix train.py --apply`: what stands after the script is its own, but for this; `--` ends that, too."""
    rest = args.arguments
    if args.script is not None and _factory(args.script):
        # A factory takes no arguments: all that follows is ours.
        parser = argparse.ArgumentParser(prog="torchsan fix", add_help=False)
        _add_options(parser)
        parser.parse_args(rest, args)
        args.arguments = []
        return
    ours = rest[: rest.index("--")] if "--" in rest else rest
    if "--apply" in ours:
        args.apply = True
        rest = [a for a in ours if a != "--apply"] + rest[len(ours) :]
    args.arguments = rest[1:] if rest[:1] == ["--"] else rest


def _factory(script: str) -> bool:
    where, colon, factory = script.rpartition(":")
    return bool(colon) and where.endswith(".py") and factory.isidentifier()


def execute(args: argparse.Namespace) -> int:
    _take_own_options(args)
    check_output(args)
    if args.memory and args.script is not None and _factory(args.script):
        raise UsageError("--memory measures a program that trains; name a script, not a factory")
    lab = _lab(args)
    if args.memory:
        return _save_memory(args, lab)
    # To be ended is to be interrupted: the trial that is running must not go on alone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _Progress(quiet=args.quiet) as progress:
            began = time.monotonic()
            outcome = Engine(lab, tell=progress.tell).run()
            outcome.seconds, outcome.forks = time.monotonic() - began, getattr(lab, "forks", 0)
    except KeyboardInterrupt:
        print("torchsan: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    finally:
        lab.close()
    _check_rerun(outcome)
    if args.apply and outcome.changed:
        for path in outcome.changed:
            source_lines(shown_path(path))  # the report shows the lines as they were
        files.write((outcome.files[path], source) for path, source in outcome.changed.items())
    emit(_report(outcome, args), args)
    left = not outcome.clean or (bool(outcome.changed) and not args.apply)
    return FOUND if outcome.mends and left else CLEAN


def _save_memory(args: argparse.Namespace, lab: Lab) -> int:
    from torchsan.fix.saving.trying import Saver

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _Progress(quiet=args.quiet) as progress:
            saver = Saver(lab, tell=progress.tell)
            table = saver.run()
    except KeyboardInterrupt:
        print("torchsan: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    finally:
        lab.close()
    report = Report(command=["fix", "--memory", *([args.script] if args.script else args.module or [])])
    report.tried = table
    if args.apply and saver.changed:
        files.write((saver.before[path], source) for path, source in saver.changed.items())
        report.notes.append("written to " + ", ".join(sorted(saver.changed)))
    elif saver.changed:
        report.notes.append("--apply writes " + ("all that helps" if table.together else "the edit that helps most"))
    emit(report, args)
    return FOUND if saver.changed and not args.apply else CLEAN


def _lab(args: argparse.Namespace) -> Lab:
    if args.module is not None:
        if not args.module:
            raise UsageError("-m needs the name of a module")
        rest = [a for a in (args.script, *args.arguments) if a is not None]
        launch = launched([*args.module, *rest])
        if launch is not None:
            program.load_script(launch.script, launch.arguments)
            return Ranks(launch, args.steps, args.timeout, sandbox=args.sandbox)
        return Subprocess(None, args.module[0], [*args.module[1:], *rest], args.steps, args.timeout, args.sandbox)
    if args.script is None:
        raise UsageError("name a script to fix, or a module with -m")
    if _factory(args.script):
        program.load_script(args.script.rpartition(":")[0], [])
        return Captures(args.script, args.method or ["jit.trace"], args.timeout)
    program.load_script(args.script, args.arguments)  # says what is wrong with the file, if something is
    return Subprocess(args.script, None, args.arguments, args.steps, args.timeout, args.sandbox)


def _check_rerun(outcome: Outcome) -> None:
    """A program that fails for reasons of its own cannot be fixed by us."""
    first = outcome.first
    if (first.error or (first.status and not first.passes)) and not first.alarms:
        if first.timed_out:
            raise UsageError(f"{first.error}; --steps 1 ends it after one backward pass, --timeout gives it longer")
        raise UsageError(f"the program does not run here, and not for a reason that torchsan knows: {_why(first)}")


def _why(first: Trial) -> str:
    if first.error.startswith("EOFError"):
        return "it reads its standard input, which is empty here"
    if first.error:
        return first.error
    said = first.output.strip().splitlines()[-1:]
    return f"it exits with {first.status}" + (f" ({said[0].strip()})" if said else "")


def _report(outcome: Outcome, args: argparse.Namespace) -> Report:
    command = ["fix", *([args.script] if args.script else args.module or []), *args.arguments]
    report = Report(command=command, findings=outcome.findings())
    proved = sum(mend.proved for mend in outcome.mends)
    report.extra = {
        "fixed": proved,
        "runs": outcome.runs,
        "seconds": round(outcome.seconds, 1),
        "applied": bool(args.apply and outcome.changed),
    }
    if not outcome.mends:
        if args.format == "full":
            of = "the captures of" if ":" in (args.script or "") else f"{len(outcome.first.passes)} backward passes of"
            report.notes.append(f"nothing to fix in {of} {args.script or args.module[0]}")
        return report
    written = "written to " + ", ".join(sorted(outcome.changed)) if args.apply else "--apply writes them"
    forks = f" ({outcome.forks} of them forks)" if outcome.forks else ""
    words = f"{proved} of {len(outcome.mends)} mended in {outcome.runs} runs{forks}, {outcome.seconds:.0f} s"
    report.notes.append(f"{words}; {written}" if outcome.changed else words)
    return report


class _Progress:
    """One line on the terminal that tells what is being tried; nothing where there is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._on = not quiet and sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        if self._on:
            print(f"\r\033[Ktorchsan: {text[:100]}", end="", file=sys.stderr, flush=True)

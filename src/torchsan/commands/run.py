"""`torchsan run`: a program under the recorder."""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
import tempfile

from torchsan.commands.output import CLEAN, FAILED, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError
from torchsan.model import Finding, Report
from torchsan.observe import program
from torchsan.observe.program import StopProgram
from torchsan.processes import child, reporting
from torchsan.processes.follow import follow_children
from torchsan.processes.journal import Journal
from torchsan.processes.monitor import start_monitor
from torchsan.processes.options import RunOptions, launched_here, shared_folder, started_by_launcher
from torchsan.processes.session import Session


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchsan run [options] (SCRIPT | -m MODULE) [arguments of the program …]"
    add_output_options(parser)
    group = parser.add_argument_group("watching")
    group.add_argument(
        "--strict", action="store_true", help="exit with 1 when there are findings, with 2 when not all was watched"
    )
    group.add_argument("--fail-fast", action="store_true", help="stop at the first finding")
    group.add_argument("--at-write", action="store_true", help="report when a saved value is written, not at backward")
    group.add_argument("--run-dir", metavar="DIR", help="keep the records of all processes in DIR, for torchsan merge")
    group.add_argument("--eager", action="store_true", help="run compiled regions as plain Python, every line watched")
    group.add_argument("--steps", type=_positive, metavar="N", help="stop after N backward passes")
    group.add_argument("--memory", action="store_true", help="measure what is kept for backward, by line and module")
    parser.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module")
    parser.add_argument("script", nargs="?", help="the script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def execute(args: argparse.Namespace) -> int:
    check_output(args)
    if args.run_dir is not None:
        _make_folder(args.run_dir)
    loaded = _load(args)
    report = Report(command=_command(loaded))
    session = _Session(args, report, loaded)
    return session.run()


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--run-dir: {path} cannot be made: {error.strerror or error}") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"--run-dir: {path} cannot be written")


def _load(args: argparse.Namespace) -> program.Program:
    if args.module is not None:
        if not args.module:
            raise UsageError("-m needs the name of a module")
        rest = [a for a in (args.script, *args.arguments) if a is not None]
        return program.load_module(args.module[0], [*args.module[1:], *rest])
    if args.script is None:
        raise UsageError("name a script to run, or a module with -m")
    return program.load_script(args.script, args.arguments)


class _Session:
    """One run of a program: the recorder starts when torch is imported and the report comes at the end."""

    def __init__(self, args: argparse.Namespace, report: Report, loaded: program.Program) -> None:
        self.args = args
        self.report = report
        self.loaded = loaded
        self.options = _options(args, loaded)
        journal = Journal(self.options.folder, "rank" if self.options.expected > 1 else "main")
        self.session = Session(self.options, journal, report, code=loaded.code)
        self.session.on_finding = self._found
        self.session.on_stop = self._stopped
        self.reported: int | None = None

    def run(self) -> int:
        start_monitor(self.options, self.session.journal)
        follow_children(self.options)
        child.adopt(self.session)
        child.watch_children(self.session.journal)
        self.session.begin()
        try:
            status = program.exit_status(program.run(self.loaded))
        except StopProgram:
            self.session.journal.ask_all_to_stop()
            status = self._finish(None, CLEAN)
        except KeyboardInterrupt as error:
            self._finish(error, 130)
            return _die_of_interrupt()
        except BaseException as error:
            status = self._finish(error, 1)
        else:
            status = self._finish(None, status)
        return status

    def _found(self, finding: Finding) -> None:
        if finding.certainty == "possible" and not self.args.possible:
            return
        if self.args.at_write:
            emit(Report(findings=[finding]), self._to_terminal(), stream=sys.stderr)

    def _to_terminal(self) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(self.args), "output": None, "html": None})

    def _stopped(self) -> None:
        """Another process asked all to stop, and this one is stuck in torch."""
        os._exit(self._status(reporting.finish(self.session, "stopped"), CLEAN))

    def _finish(self, error: BaseException | None, status: int) -> int:
        """Explain, stop recording, report; then the program's own traceback."""
        if error is not None:
            self.session.explain(error)
        outcome = "ended" if error is None else f"failed with {type(error).__name__}"
        if os.getpid() != self.options.root:
            self.session.end(outcome)  # a fork that has come to the end of the program, as its parent will
        elif self._children_left():
            # Multiprocessing waits for them when the interpreter ends; the report has to wait, too.
            atexit.register(self._finish_late, outcome, status)
        else:
            status = self._status(reporting.finish(self.session, outcome), status)
        if error is not None:
            explained = type(_told_of(error)) is list
            program.print_traceback(error, _ours_or_torch if explained else _ours)
        return status

    def _children_left(self) -> bool:
        process = sys.modules.get("multiprocessing.process")
        children = process.active_children() if process is not None else []
        return any(not worker.daemon for worker in children)

    def _finish_late(self, outcome: str, status: int) -> None:
        process = sys.modules["multiprocessing.process"]
        for worker in process.active_children():
            if not worker.daemon:
                worker.join()
        last = self._status(reporting.finish(self.session, outcome), status)
        if last != status:
            sys.stdout.flush()
            os._exit(last)

    def _status(self, found: int, status: int) -> int:
        if self.args.strict and "stepped_aside" in self.report.extra:
            return FAILED
        if self.args.strict or (self.args.fail_fast and status == 0):
            return FOUND if found or self.report.alarms else status
        return status


def _told_of(error: BaseException) -> object:
    """What the recorder wrote beside the exception, which may be of a class that answers for itself."""
    held = BaseException.__dict__["__dict__"].__get__(error)
    return dict.get(held, "__torchsan__")


def _options(args: argparse.Namespace, loaded: program.Program) -> RunOptions:
    launched = started_by_launcher(os.environ)
    expected = launched_here(os.environ) if launched else 1
    kept = args.run_dir is not None
    folder = args.run_dir or (shared_folder(os.environ) if expected > 1 else tempfile.mkdtemp(prefix="torchsan-"))
    return RunOptions(
        folder=os.path.abspath(folder),
        root=os.getpid(),
        kept=kept,
        expected=expected,
        fail_fast=args.fail_fast,
        at_write=args.at_write,
        eager=args.eager,
        memory=args.memory,
        timeline=bool(args.html) or args.format == "html",
        steps=args.steps or 0,
        user_roots=[loaded.search_path],
        output={name: getattr(args, name) for name in ("format", "output", "html", "color", "possible")},
        command=_command(loaded),
    )


def _command(loaded: program.Program) -> list[str]:
    """As it was typed: a module by its name, not by its file."""
    if loaded.spec is not None:
        return ["run", "-m", loaded.spec.name.removesuffix(".__main__"), *loaded.arguments[1:]]
    return ["run", *loaded.arguments]


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _ours(path: str) -> bool:
    return path.startswith((_OURS, "<frozen runpy>"))


def _ours_or_torch(path: str) -> bool:
    """Of an error that we explained, the way through torch's own files is of no more interest."""
    return _ours(path) or f"{os.sep}site-packages{os.sep}torch{os.sep}" in path


# What Windows tells of a program that Ctrl-C has ended.
CONTROL_C_EXIT = 0xC000013A


def _die_of_interrupt() -> int:
    """End as an interrupted python does, so that the shell sees the signal."""
    if os.name == "nt":
        return CONTROL_C_EXIT
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return 130

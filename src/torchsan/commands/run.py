"""`torchsan run`: a program under the recorder."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from torchsan.commands.output import CLEAN, FAILED, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError
from torchsan.model import Finding, Report
from torchsan.observe import program
from torchsan.observe.imports import after_import
from torchsan.observe.program import StopProgram

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchsan run [options] (SCRIPT | -m MODULE) [arguments of the program …]"
    add_output_options(parser)
    group = parser.add_argument_group("watching")
    group.add_argument(
        "--strict", action="store_true", help="exit with 1 when there are findings, with 2 when not all was watched"
    )
    group.add_argument("--fail-fast", action="store_true", help="stop at the first finding")
    group.add_argument("--at-write", action="store_true", help="report when a saved value is written, not at backward")
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
    loaded = _load(args)
    report = Report(command=["run", *loaded.arguments])
    session = _Session(args, report, loaded)
    return session.run()


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
        self.recorder: Recorder | None = None

    def run(self) -> int:
        after_import("torch", self._torch_imported)
        try:
            status = program.exit_status(program.run(self.loaded))
        except StopProgram:
            status = CLEAN
            self._finish(None)
        except KeyboardInterrupt as error:
            self._finish(error)
            return _die_of_interrupt()
        except BaseException as error:
            self._finish(error)
            status = 1
        else:
            self._finish(None)
        if self.args.strict and "stepped_aside" in self.report.extra:
            return FAILED
        if self.args.strict or (self.args.fail_fast and status == 0):
            return FOUND if self.report.alarms else status
        return status

    def _torch_imported(self) -> None:
        from torchsan.observe.recorder import Recorder
        from torchsan.observe.sites import add_user_root

        add_user_root(self.loaded.search_path)
        self.recorder = Recorder(
            self.report,
            on_finding=self._found,
            at_write=self.args.at_write,
            memory=self.args.memory,
            eager=self.args.eager,
            timeline=bool(self.args.html) or self.args.format == "html",
        )
        self.recorder.user_code(self.loaded.code)
        if self.args.steps:
            self.recorder.stop_after(self.args.steps, StopProgram)
        self.recorder.start()

    def _found(self, finding: Finding) -> None:
        if finding.certainty == "possible" and not self.args.possible:
            return
        if self.args.at_write:
            emit(Report(findings=[finding]), self._to_terminal(), stream=sys.stderr)
        if self.args.fail_fast and finding.level != "note":
            raise StopProgram

    def _to_terminal(self) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(self.args), "output": None, "html": None})

    def _finish(self, error: BaseException | None) -> None:
        """Explain, stop recording, report; then the program's own traceback."""
        if self.recorder is not None:
            if error is not None:
                self.recorder.explain(error)
            self.recorder.stop()
        sys.stdout.flush()
        wanted = self.args.format != "full" or self.args.output or self.args.html or self.args.memory
        if wanted or self.report.visible(possible=self.args.possible) or self.report.notes:
            emit(self.report, self.args, stream=sys.stderr)
        if error is not None:
            explained = type(_told_of(error)) is list
            program.print_traceback(error, _ours_or_torch if explained else _ours)


def _told_of(error: BaseException) -> object:
    """What the recorder wrote beside the exception, which may be of a class that answers for itself."""
    held = BaseException.__dict__["__dict__"].__get__(error)
    return dict.get(held, "__torchsan__")


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

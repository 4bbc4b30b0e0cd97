"""`torchsan check PATH…`: hazards from the source alone."""

from __future__ import annotations

import argparse
import linecache
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from torchsan.check.analyse import Result, analyse
from torchsan.check.cache import default_folder
from torchsan.check.choosing import baseline
from torchsan.check.choosing.config import Config, codes, load
from torchsan.check.choosing.files import Source, Unreadable, changed_since, decoded, find_files
from torchsan.check.runner import Progress, check_files, default_jobs
from torchsan.commands.output import CLEAN, FAILED, FOUND, add_output_options, check_output, emit
from torchsan.errors import UsageError
from torchsan.model import Finding, Report
from torchsan.model.source import real_path, shown_path
from torchsan.rules import all_rules

if TYPE_CHECKING:
    from torchsan.fix.static import Mended

LARGE = 300


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders (.py, .ipynb); - is standard input")
    add_output_options(parser)
    group = parser.add_argument_group("checking")
    group.add_argument("--select", action="append", metavar="CODES", help="only these rules (TS101, TS2, a name)")
    group.add_argument("--ignore", action="append", metavar="CODES", help="all but these rules")
    group.add_argument("--exclude", action="append", metavar="PATTERN", help="files or folders to leave out")
    group.add_argument("--changed-only", metavar="REV", help="only files that differ from a git revision")
    group.add_argument("--baseline", metavar="FILE", help="known findings to keep quiet; made when it is not there")
    group.add_argument("--update-baseline", action="store_true", help="drop from the baseline what is mended")
    group.add_argument("--statistics", action="store_true", help="count findings by rule")
    group.add_argument("--fix", action="store_true", help="write the edits that are safe without a run")
    group.add_argument("--unsafe-fixes", action="store_true", help="write the other edits, too: look at them")
    group.add_argument("--diff", action="store_true", help="only show what --fix would write")
    group.add_argument("--stdin-name", default="<stdin>", metavar="NAME", help="the name of standard input")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    group.add_argument("--no-cache", action="store_true", help="check every file again")
    group.add_argument("--cache-dir", type=Path, metavar="DIR", help="where results are kept")


def execute(args: argparse.Namespace) -> int:
    check_output(args)
    config = _config(args)
    args.possible = args.possible or config.possible
    results = _results(args, config)
    mends = _mend(results, args, config)
    if args.diff:
        return FOUND if mends else CLEAN
    if mends:
        results = _results(args, config)
    report = Report(command=["check", *args.paths])
    errors = [f"{r.path}: {r.error}" for r in results if r.error]
    report.notes += [f"{r.path}:{remark}" for r in results for remark in r.remarks]
    if mends:
        report.extra = {"fixed": sum(len(mend.findings) for mend in mends)}
        report.notes += [_mended_words(mend) for mend in mends]
    _gather(report, _without_known([f for r in results for f in r.findings], config, args, report), config)
    for error in errors:
        print(f"torchsan: {error}", file=sys.stderr)
    emit(report, args)
    if args.statistics:
        _print_statistics(report, args)
    if any(finding.level != "note" for finding in report.visible(possible=args.possible)):
        return FOUND
    return FAILED if errors else CLEAN


def _config(args: argparse.Namespace) -> Config:
    first = next((p for p in args.paths if p != "-"), ".")
    config = load(first if os.path.isdir(first) else os.path.dirname(first) or ".")
    if args.select:
        config.select = codes(args.select, "--select")
    if args.ignore:
        config.ignore = codes(args.ignore, "--ignore")
    config.exclude = (*config.exclude, *(args.exclude or ()))
    config.baseline = args.baseline or config.baseline
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    if "-" in args.paths and (args.fix or args.unsafe_fixes or args.diff):
        raise UsageError("standard input cannot be mended: name the file")
    if args.update_baseline and not config.baseline:
        raise UsageError("--update-baseline needs --baseline FILE")
    return config


def _mend(results: list[Result], args: argparse.Namespace, config: Config) -> list[Mended]:
    """What --fix and --unsafe-fixes ask for; --diff only shows it."""
    if not (args.fix or args.unsafe_fixes or args.diff):
        return []
    from torchsan.fix import files
    from torchsan.fix.source import diff
    from torchsan.fix.static import mend

    def wanted(finding: Finding) -> bool:
        return config.wants(finding.code) and (args.possible or finding.certainty != "possible")

    mends = []
    for result in results:
        if any(wanted(finding) for finding in result.findings) and result.path.endswith(".py"):
            path = real_path(result.path)
            done = mend(path, Path(path).read_bytes(), unsafe=args.unsafe_fixes, wanted=wanted, possible=args.possible)
            mends += [done] if done is not None else []
    if args.diff:
        print("".join(diff(done.before, done.after) for done in mends), end="")
    else:
        files.write((done.before, done.after) for done in mends)
    return mends


def _mended_words(done: Mended) -> str:
    counts = Counter(fix.applicability for finding in done.findings for fix in finding.fixes)
    how = " and ".join(f"{count} {label}" for label, count in sorted(counts.items()))
    edits = "edit" if counts.total() == 1 else "edits"
    return f"{shown_path(done.before.path)}: {how} {edits} written"


def _results(args: argparse.Namespace, config: Config) -> list[Result]:
    if "-" in args.paths:
        if len(args.paths) > 1:
            raise UsageError("standard input (-) cannot be mixed with files")
        return [_standard_input(args.stdin_name, args.possible, modules=config.about_captures)]
    left_out: list[str] = []
    files = find_files(args.paths or ["."], config.exclude, left_out)
    for path in left_out:
        print(f"torchsan: {shown_path(path)} was left out as made by a tool; name it to check it", file=sys.stderr)
    if args.changed_only:
        changed = changed_since(args.changed_only)
        files = [file for file in files if os.path.realpath(file) in changed]
    folder = None if args.no_cache else args.cache_dir or default_folder()
    progress = _progress if len(files) >= LARGE and sys.stderr.isatty() else None
    return check_files(
        files,
        jobs=args.jobs or default_jobs(),
        cache_folder=folder,
        possible=args.possible,
        modules=config.about_captures,
        progress=_throttled(progress),
    )


def _standard_input(name: str, possible: bool, *, modules: bool) -> Result:
    try:
        source = Source(name, decoded(sys.stdin.buffer.read()))
    except Unreadable as error:
        return Result(name, error=str(error))
    lines = source.text.splitlines(keepends=True)
    linecache.cache[name] = (len(source.text), None, lines, name)
    return analyse(source, possible=possible, modules=modules)


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\rtorchsan: {done} of {total} files", end=end, file=sys.stderr, flush=True)


def _throttled(progress: Progress | None) -> Progress | None:
    """A line that changes a hundred times is enough."""
    if progress is None:
        return None

    def sometimes(done: int, total: int) -> None:
        if done == total or done % max(1, total // 100) == 0:
            progress(done, total)

    return sometimes


def _gather(report: Report, findings: list[Finding], config: Config) -> None:
    for finding in findings:
        if config.wants(finding.code):
            report.add(finding)


def _without_known(findings: list[Finding], config: Config, args: argparse.Namespace, report: Report) -> list[Finding]:
    """Leave out what the baseline knows; make or shrink the file where that was asked for."""
    _show_cells(findings)
    if not config.baseline:
        return findings
    file = Path(config.baseline)
    shown = [f for f in findings if config.wants(f.code) and (args.possible or f.certainty != "possible")]
    if not file.exists():
        baseline.save(file, Counter(baseline.key_of(f) for f in shown))
        report.notes.append(f"the baseline {file} was made with {len(shown)} findings")
        return []
    known = baseline.load(file)
    new, used = baseline.split(shown, known)
    mended = known.total() - used.total()
    if mended and args.update_baseline:
        baseline.save(file, used)
        report.notes.append(f"{mended} mended findings were dropped from the baseline {file}")
    elif mended:
        report.notes.append(f"{mended} findings of the baseline are mended: --update-baseline drops them")
    return new


def _show_cells(findings: list[Finding]) -> None:
    """Make the lines of notebook cells known to renderers, and forget lines of files that have changed."""
    linecache.checkcache()
    from torchsan.check.choosing.files import read

    notebooks = {f.primary.path.rpartition(":cell ")[0] for f in findings}
    for path in notebooks - {""}:
        read(real_path(path)).show_cells()


def _print_statistics(report: Report, args: argparse.Namespace) -> None:
    counts = Counter(f.code for f in report.visible(possible=args.possible))
    stream = sys.stdout if args.format in ("full", "concise") and not args.output else sys.stderr
    for code, count in counts.most_common():
        print(f"{count:>6}  {code}  {all_rules()[code].name}", file=stream)
    print(f"{counts.total():>6}  in all", file=stream)

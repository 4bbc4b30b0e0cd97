"""Check many files: from the cache where nothing has changed, the rest on several cores."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchsan.check.analyse import Result, analyse
from torchsan.check.cache import Cache, Stamp, digest_of
from torchsan.check.choosing.files import Unreadable, source_of
from torchsan.model import Finding
from torchsan.model.source import shown_path

# Below this, starting processes costs more than it saves.
WORTH_PROCESSES = 60
BATCH = 25
# From here on, what cannot hold a hazard is not parsed unless it looks broken: that would be half of the time.
LARGE_TREE = 300
Entry = tuple[str, Stamp, str, Result]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What every file is checked for."""

    possible: bool = False
    modules: bool = False
    # Whether the syntax of what cannot hold a hazard is read, too.
    thorough: bool = True


EVERYTHING = Asked()


def check_files(
    paths: list[str],
    *,
    jobs: int,
    cache_folder: Path | None,
    possible: bool = False,
    modules: bool = False,
    progress: Progress | None = None,
) -> list[Result]:
    """One result a file, in the order given; with `modules` every module is looked at as if it were captured."""
    asked = Asked(possible, modules, thorough=len(paths) < LARGE_TREE)
    cache = Cache(cache_folder, possible=possible, thorough=asked.thorough, modules=modules)
    results: dict[str, Result] = {}
    pending: list[str] = []
    for path in paths:
        known = cache.by_stamp(path, _stamp(path)) if cache.stamps else None
        if known is None:
            pending.append(path)
        else:
            results[path] = known
    pending = _unknown_content(pending, cache, results)
    fresh: list[Entry] = []
    for entry in _work(pending, jobs, asked):
        fresh.append(entry)
        results[entry[0]] = entry[3]
        if progress is not None:
            progress(len(results), len(paths))
    cache.store(fresh)
    return [results[path] for path in paths]


def _unknown_content(paths: list[str], cache: Cache, results: dict[str, Result]) -> list[str]:
    """Files whose content was never checked: a new checkout changes times, not contents."""
    if not cache.known:
        return paths
    left, renewed = [], []
    for path in paths:
        stamp = _stamp(path)
        try:
            digest = digest_of(path, Path(path).read_bytes())
        except OSError:
            left.append(path)
            continue
        known = cache.by_content(path, digest)
        if known is None:
            left.append(path)
        else:
            results[path] = known
            renewed.append((path, stamp, digest, known))
    cache.store(renewed)
    return left


def _stamp(path: str) -> Stamp:
    try:
        state = os.stat(path)
    except OSError:
        return (-1, -1)
    return (state.st_size, state.st_mtime_ns)


def _work(paths: list[str], jobs: int, asked: Asked) -> Iterator[Entry]:
    batches = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]
    if jobs < 2 or len(paths) < WORTH_PROCESSES:
        for batch in batches:
            yield from check_batch(batch, asked)
        return
    # Imported late: for a single file it would be a fifth of the time.
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs) as pool:
        for entries in pool.map(check_batch, batches, [asked] * len(batches)):
            yield from entries


def check_batch(paths: list[str], asked: Asked = EVERYTHING) -> list[Entry]:
    # Trees are many small objects that die together: looking for cycles among them costs a third of parsing.
    was_on = gc.isenabled()
    gc.disable()
    try:
        return [_check(path, asked) for path in paths]
    finally:
        if was_on:
            gc.enable()


def _check(path: str, asked: Asked) -> Entry:
    stamp = _stamp(path)
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        if isinstance(error, IsADirectoryError):
            reason = "is a folder that cannot be listed"
        return path, (-1, -1), "", Result(shown_path(path), error=reason)
    digest = digest_of(path, data)
    try:
        source = source_of(path, data)
        result = analyse(source, possible=asked.possible, thorough=asked.thorough, modules=asked.modules)
        shown = [finding for finding in result.findings if _may_be_mended(finding, result, asked)]
        if shown and not source.cells:
            # Imported late: most files have nothing to mend.
            from torchsan.fix.static import with_fixes

            mended = iter(with_fixes(path, data, shown, result.findings, possible=asked.possible))
            result.findings = [next(mended) if finding in shown else finding for finding in result.findings]
        return path, stamp, digest, result
    except Unreadable as error:
        return path, stamp, digest, Result(shown_path(path), error=str(error))
    except Exception as error:
        # A program that we fail to follow must not stop the others from being checked.
        if os.environ.get("TORCHSAN_DEBUG"):
            raise
        reason = f"could not be followed ({type(error).__name__}: {error}); please report it"
        return path, (-1, -1), "", Result(shown_path(path), error=reason)


def _may_be_mended(finding: Finding, result: Result, asked: Asked) -> bool:
    """Whether an edit is looked for: what a capture or several ranks make of a program only a run can tell."""
    shown = asked.possible or finding.certainty != "possible"
    return shown and finding.code[2] in "125" and finding.primary.path == result.path


def default_jobs() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1

"""Files to check: which ones, and their text."""

from __future__ import annotations

import io
import json
import linecache
import os
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from torchsan.errors import UsageError
from torchsan.model import Finding
from torchsan.model.source import real_path, shown_path

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", ".eggs"})
# What tools make beside a project; inside a package they are folders like any other.
MADE_FOLDERS = frozenset({"build", "dist", "venv", "env"})
SUFFIXES = (".py", ".ipynb")


class Unreadable(Exception):
    """A file that cannot be checked; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text to check. A notebook is one text with a note of the cell and line that each line comes from."""

    path: str
    text: str
    cells: tuple[tuple[int, int], ...] = ()

    def restored(self, finding: Finding) -> Finding:
        """The finding with its places in the cells of the notebook."""
        if not self.cells:
            return finding
        spans = []
        for span in finding.spans:
            cell, line = self.cells[min(span.line, len(self.cells)) - 1]
            _, end = self.cells[min(span.end_line, len(self.cells)) - 1]
            spans.append(replace(span, path=f"{span.path}:cell {cell}", line=line, end_line=end))
        return replace(finding, spans=tuple(spans))

    def show_cells(self) -> None:
        """Let renderers find the lines of the cells."""
        lines: dict[int, list[str]] = {}
        for (cell, _), text in zip(self.cells, self.text.splitlines(), strict=False):
            lines.setdefault(cell, []).append(text + "\n")
        for cell, texts in lines.items():
            name = real_path(f"{self.path}:cell {cell}")
            linecache.cache[name] = (len(texts), None, texts, name)


def find_files(paths: Iterable[str], exclude: Iterable[str] = (), left_out: list[str] | None = None) -> list[str]:
    """Python files and notebooks below the paths, in order, each once; `left_out` gets folders passed over by name."""
    patterns = list(exclude)
    passed = left_out if left_out is not None else []
    found: dict[str, None] = {}
    for path in paths:
        if os.path.isdir(path):
            for file in _below(path, patterns, passed):
                found.setdefault(file)
        elif os.path.exists(path):
            found.setdefault(path)
        else:
            raise UsageError(f"there is no file or folder {path}")
    return list(found)


def _below(folder: str, patterns: list[str], passed: list[str]) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        # It is told of like a file that cannot be read.
        yield folder
        return
    for entry in entries:
        if patterns and any(fnmatch(entry.path, p) or fnmatch(entry.name, p) for p in patterns):
            continue
        if entry.is_dir(follow_symlinks=False):
            if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
                continue
            if entry.name in MADE_FOLDERS and _made_by_a_tool(folder, entry.path):
                passed.append(entry.path)
                continue
            yield from _below(entry.path, patterns, passed)
        elif entry.name.endswith(SUFFIXES):
            yield entry.path


def _made_by_a_tool(parent: str, folder: str) -> bool:
    """A virtual environment, or what packaging leaves in the root of a project."""
    if os.path.exists(os.path.join(folder, "pyvenv.cfg")):
        return True
    if os.path.basename(folder) not in ("build", "dist"):
        return False
    package = any(os.path.exists(os.path.join(place, "__init__.py")) for place in (parent, folder))
    project = any(os.path.exists(os.path.join(parent, name)) for name in ("setup.py", "setup.cfg", "pyproject.toml"))
    return project and not package


def changed_since(revision: str) -> set[str]:
    """Absolute paths of files that differ from a git revision, with those git does not know yet."""
    root = _git("rev-parse", "--show-toplevel").strip()
    names = _git("diff", "--name-only", "--diff-filter=d", "-z", revision, "--").split("\0")
    names += _git("ls-files", "--others", "--exclude-standard", "--full-name", "-z", root).split("\0")
    return {os.path.realpath(os.path.join(root, name)) for name in names if name}


def _git(*words: str) -> str:
    # Imported late: most runs never ask git, and importing it takes longer than checking a file.
    import subprocess

    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError("--changed-only needs git, which cannot be run") from error
    if done.returncode:
        reason = done.stderr.strip().splitlines()
        raise UsageError(f"--changed-only: git says {reason[0] if reason else 'no'}")
    return done.stdout


def read(path: str) -> Source:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from error
    return source_of(path, data)


def source_of(path: str, data: bytes) -> Source:
    shown = shown_path(path)
    if path.endswith(".ipynb"):
        return _notebook(shown, data)
    return Source(shown, decoded(data))


def decoded(data: bytes) -> str:
    try:
        if data.isascii() or b"coding" not in data[:200]:
            return data.decode("utf-8-sig").replace("\r\n", "\n")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding).replace("\r\n", "\n")
    except (UnicodeDecodeError, SyntaxError, LookupError) as error:
        raise Unreadable(f"cannot be decoded: {error}") from error


def _notebook(path: str, data: bytes) -> Source:
    try:
        cells = json.loads(data)["cells"]
        codes = ["".join(c["source"]) for c in cells if c.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"is not a notebook: {type(error).__name__} {error}") from error
    lines: list[str] = []
    origins: list[tuple[int, int]] = []
    for number, code in enumerate(codes, 1):
        for line, text in enumerate(_plain_python(code).splitlines(), 1):
            lines.append(text)
            origins.append((number, line))
    return Source(path, "\n".join(lines) + "\n", tuple(origins))


def _plain_python(code: str) -> str:
    """A cell without IPython's magic; the lines stay where they are."""
    first = code.lstrip().partition("\n")[0]
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return "\n".join("" for _ in code.splitlines())
    lines = []
    for text in code.splitlines():
        bare = text.lstrip()
        magic = bare.startswith(("%", "!", "?")) or bare.rstrip().endswith("?")
        lines.append(text[: len(text) - len(bare)] + "pass" if magic else text)
    return "\n".join(lines)

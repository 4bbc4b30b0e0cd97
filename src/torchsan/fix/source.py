"""A source file that can be edited by the places of its syntax tree, byte for byte the same elsewhere."""

from __future__ import annotations

import ast
import codecs
import difflib
import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from torchsan.errors import UsageError
from torchsan.model import Span
from torchsan.model.source import shown_path

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class Source:
    """One file: its text as decoded, its tree, and the way from a node to characters."""

    def __init__(self, path: str, raw: bytes) -> None:
        self.path = path
        self.raw = raw
        self.bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
        try:
            self.encoding = _encoding(raw)
            self.text = raw[len(self.bom) :].decode(self.encoding)
            self.tree = ast.parse(raw, path)
        except (SyntaxError, UnicodeDecodeError, ValueError) as error:
            raise UsageError(f"{path} is not Python source: {error}") from None

    @classmethod
    def read(cls, path: str) -> Source:
        try:
            with open(path, "rb") as file:
                return cls(path, file.read())
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None

    @cached_property
    def lines(self) -> list[str]:
        return _LINE.findall(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def newline(self) -> str:
        return next((end for line in self.lines if (end := line[len(line.rstrip("\r\n")) :])), "\n")

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    # -- places -------------------------------------------------------------------------------------

    def offset(self, line: int, utf8_column: int) -> int:
        """Characters before a position; the syntax tree counts columns in UTF-8 bytes."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        before = utf8_column if text.isascii() else len(text.encode()[:utf8_column].decode(errors="ignore"))
        return self._starts[line - 1] + before

    def start(self, node: ast.AST) -> int:
        return self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def segment(self, node: ast.AST) -> str:
        return self.text[self.start(node) : self.end(node)]

    def line_start(self, line: int) -> int:
        return self._starts[min(line, len(self.lines) + 1) - 1]

    def indent(self, statement: ast.stmt) -> str:
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def owns_its_lines(self, statement: ast.stmt) -> bool:
        """True when whole lines can be put before it, or it can be moved: nothing else is on its lines."""
        before = self.text[self.line_start(statement.lineno) : self.start(statement)]
        after = self.text[self.end(statement) : self._starts[statement.end_lineno or statement.lineno]]
        return not before.strip() and not after.split("#")[0].strip()

    # -- nodes --------------------------------------------------------------------------------------

    def bounds(self, span: Span) -> tuple[int, int]:
        """The characters of a span of a finding, whose columns count characters from 1."""
        last = len(self.lines)
        begin = self._starts[min(span.line, last) - 1] + span.column - 1
        return begin, max(begin, self._starts[min(span.end_line, last) - 1] + span.end_column - 1)

    def expression(self, span: Span) -> ast.expr | None:
        """The largest expression inside the span that starts or ends with it, else the smallest around it."""
        begin, end = self.bounds(span)
        exact: list[ast.expr] = []
        around: list[tuple[int, int, ast.expr]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                start, stop = self.start(node), self.end(node)
                if (start, stop) == (begin, end):
                    exact.append(node)
                elif start <= begin and stop >= end:
                    around.append((stop - start, len(around), node))
        return exact[0] if exact else (min(around)[2] if around else None)

    def statement(self, span: Span) -> ast.stmt | None:
        """The innermost statement that holds the first character of the span."""
        begin, _ = self.bounds(span)
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and self.start(n) <= begin < self.end(n)]
        return max(found, key=self.start, default=None)

    def where(self, node: ast.AST) -> str:
        """`line 3 of train.py`"""
        return f"line {getattr(node, 'lineno', 0)} of {os.path.basename(self.path)}"

    def statement_at(self, line: int) -> ast.stmt | None:
        """The innermost statement on a line."""
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
        return max(found, key=self.start, default=None)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        return next((n for n in (node, *self.above(node)) if isinstance(n, ast.stmt)), None)

    def function_of(self, node: ast.AST) -> Function | None:
        return next((n for n in self.above(node) if isinstance(n, Function)), None)

    def scope_of(self, node: ast.AST) -> ast.AST:
        return self.function_of(node) or self.tree

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that this one is in."""
        parent = self.parents.get(statement)
        for _, value in ast.iter_fields(parent) if parent is not None else ():
            if isinstance(value, list) and any(item is statement for item in value):
                return value
        return [statement]

    def loop_of(self, node: ast.AST) -> ast.For | ast.While | None:
        """The innermost loop of the same function around a node."""
        for parent in self.above(node):
            if isinstance(parent, (ast.For, ast.While)):
                return parent
            if isinstance(parent, Function | ast.Lambda | ast.ClassDef):
                return None
        return None

    # -- change -------------------------------------------------------------------------------------

    def edited(self, edits: Iterable[Edit]) -> Source | None:
        """The file after the edits; nothing when they overlap or the result is not Python."""
        text, limit = self.text, len(self.text) + 1
        for edit in sorted(set(edits), reverse=True):
            if edit.end > limit:
                return None
            text = text[: edit.start] + edit.text + text[edit.end :]
            limit = edit.start
        try:
            raw = self.bom + text.encode(self.encoding)
            return Source(self.path, raw)
        except (UsageError, UnicodeEncodeError):
            return None


def diff(before: Source, after: Source) -> str:
    """A unified diff, as `patch -p0` takes it."""
    shown = shown_path(before.path)
    old, new = ([line.rstrip("\r\n") + "\n" for line in source.lines] for source in (before, after))
    return "".join(difflib.unified_diff(old, new, shown, shown))


def line_map(before: Source, after: Source) -> dict[int, int]:
    """Where each line of the new file stood in the old one; changed lines by their place, new ones not at all."""
    matcher = difflib.SequenceMatcher(None, before.lines, after.lines, autojunk=False)
    found: dict[int, int] = {}
    for kind, old, old_end, new, new_end in matcher.get_opcodes():
        if kind == "equal" or old_end - old == new_end - new:
            found.update({new + k + 1: old + k + 1 for k in range(new_end - new)})
    return found


def encoded(text: str) -> bytes:
    """The bytes of a file with this text, which may declare its encoding."""
    plain = text.encode(errors="surrogatepass")
    try:
        return text.encode(_encoding(plain))
    except (SyntaxError, UnicodeEncodeError):
        return plain


def _encoding(raw: bytes) -> str:
    return tokenize.detect_encoding(io.BytesIO(raw).readline)[0].removesuffix("-sig")


def real(path: str) -> str:
    return os.path.realpath(path)

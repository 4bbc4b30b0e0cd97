"""Where a name got its value and how it was read since, told from the text of a function."""

from __future__ import annotations

import re

from torchsan.check.reading.outline import Definition

_INDENT = re.compile(r"[ \t]*")
_HARMLESS = (".shape", ".size", ".device", ".dtype", ".dim", ".ndim", ".numel", ".append", ".items", ".keys")
_READS_BEFORE = (
    *("+", "-", "len(", "isinstance(", "range(", "zeros_like(", "ones_like(", "empty_like(", "if", "not"),
    *("return", "print(", "enumerate(", "list(", "tuple(", "append("),
)
_READS_AFTER = (" : ", " is", " + ", " - ", " ==", " in", " !=", " if", " an", " or")


def history(text: str, name: str, start: int, end: int) -> tuple[int, bool]:
    """Where the value that `name` has at `end` is bound (after the `=`), and whether it was read since."""
    binding, used = -1, False
    size = len(name)
    at = text.find(name, start, end)
    while at >= 0:
        after = at + size
        before = text[at - 1]
        follows = text[after : after + 3]
        if not (before.isalnum() or before in "_.\"'" or follows[:1].isalnum() or follows[:1] == "_"):
            head = text[text.rfind("\n", start, at) + 1 : at].strip()
            if follows.startswith(" = ") and (not head or head.endswith(",")):
                binding, used = (after + 3 if not head else at), False
            elif follows.startswith(": ") and not head and " = " in rest(text, after):
                # name: type = value
                binding, used = text.find(" = ", after) + 3, False
            elif (follows.startswith((", ", ",)")) and not head.count("(") and " = " in rest(text, after)) or (
                head.startswith(("for ", "async for ")) and " in " not in head and "(" not in head[4:]
            ):
                binding, used = at, False
            elif follows.startswith("=") or (follows[:1] == " " and follows[2:] == "=" and follows[1] in "+-*/"):
                pass
            elif not head and follows[:1] in ("[", "."):
                # The target of a write; what is read on the right of it comes next.
                pass
            elif head.startswith("#"):
                pass
            elif not (follows[:1] == "." and text.startswith(_HARMLESS, after)) and before != "#":
                harmless = head.startswith("def ") or follows.startswith((": ", "=")) or _saves_nothing(head, follows)
                used = used or not harmless
        at = text.find(name, after, end)
    return binding, used


def _saves_nothing(head: str, follows: str) -> bool:
    """Whether a name between these two is read in a way that keeps no tensor: a sum, a test, a length."""
    if follows[:2] in (" *", " /", " @") or follows[:1] in (".", "["):
        return False
    return head.endswith(_READS_BEFORE) or (follows in _READS_AFTER and not head.endswith(("*", "/", "@", ".")))


def rest(text: str, at: int) -> str:
    """From a place to the end of its line."""
    end = text.find("\n", at)
    return text[at:] if end < 0 else text[at:end]


def loop_around(text: str, definition: Definition, since: int, at: int) -> tuple[int, int] | None:
    """The text of the outermost loop around a write that starts after `since`."""
    indent = indent_at(text, at)
    found = None
    end = at
    while end > since:
        start = text.rfind("\n", 0, end - 1) + 1
        if start <= since:
            break
        width = indent_at(text, start)
        if width < indent and text[start + width : start + width + 1].strip():
            indent = width
            if text.startswith(("for ", "while ", "async for "), start + width):
                found = (start, width)
        end = start
    if found is None:
        return None
    stop = at
    while True:
        stop = text.find("\n", stop) + 1
        if stop <= 0 or stop >= definition.end:
            return found[0], definition.end
        width = indent_at(text, stop)
        if width <= found[1] and text[stop + width : stop + width + 1].strip():
            return found[0], stop


def line_of(text: str, at: int) -> int:
    """The start of the line of a place."""
    return text.rfind("\n", 0, at) + 1


def indent_at(text: str, start: int) -> int:
    match = _INDENT.match(text, start)
    return match.end() - start if match is not None else 0

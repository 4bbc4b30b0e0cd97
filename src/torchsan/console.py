"""Text for consoles that know fewer characters than we use."""

from __future__ import annotations

from typing import TextIO

_PLAIN = str.maketrans({"→": "->", "…": "...", "−": "-", "–": "-", "·": "*", "×": "x", "≤": "<=", "≥": ">="})


def fitting(text: str, stream: TextIO) -> str:
    """The text as this stream can take it: plain twins of our signs, and escapes for what has none."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)


def say(text: str, stream: TextIO) -> None:
    stream.write(fitting(text, stream))
    stream.flush()

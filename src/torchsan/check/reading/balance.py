"""Whether a text has the look of a whole Python file, at a hundredth of the price of reading its syntax."""

from __future__ import annotations

_PAIRS = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"))
# Left by a merge, or Python 2.
_ODD = (b"\n<<<<<<< ", b"\n>>>>>>> ", b' print "', b" print '", b'\nprint "', b"\nprint '")


def looks_whole(text: str) -> bool:
    """Brackets come in pairs, quotes of docstrings too, and nothing is left over from a merge or from Python 2.

    False costs only time: the syntax is then read. True can be wrong for an error that leaves pairs intact.
    """
    data = text.encode()
    if any(data.count(opened) != data.count(closed) for opened, closed in _PAIRS):
        return False
    if data.count(b'"""') % 2 or data.count(b"'''") % 2 or b"\0" in data:
        return False
    return not any(sign in data for sign in _ODD)

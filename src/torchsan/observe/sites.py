"""Where in the program something happens, recorded cheaply and resolved only when it is shown.

A site is a pair of frames: the user's line, and the library's line below it when there is one. Taking
one costs a dictionary look-up; columns are computed from the code object's positions on demand.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from functools import cache, cached_property
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from torchsan import compat_compile
from torchsan.model import Place
from torchsan.model.source import shown_path, source_line

USER, LIBRARY, TORCH, OURS = range(4)

_TORCHSAN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PATHS = sysconfig.get_paths()
_PACKAGES = tuple(
    {os.path.realpath(_PATHS[key]) + os.sep for key in ("purelib", "platlib")}
    | {_PATHS[key] + os.sep for key in ("purelib", "platlib")}
)
_STDLIB = tuple({_PATHS["stdlib"] + os.sep, _PATHS["platstdlib"] + os.sep})

_user_roots: set[str] = set()
_kinds: dict[int, int] = {}
# What a code object is to the search for a line: passed by, the end of it, worth a line of its own, a compiler's.
PASSED, ENDS, SHOWN, COMPILERS = range(4)
_roles: dict[int, int] = {}
# Kinds and sites are keyed by the address of a code object, so each code object seen is kept alive.
_codes: list[Any] = []


def add_user_root(folder: str) -> None:
    """Count code below this folder as the user's, wherever it is installed."""
    _user_roots.add(os.path.join(os.path.realpath(folder), ""))
    _kinds.clear()
    _roles.clear()
    kind_of_path.cache_clear()


# Every start of a recorder asks about every module, and the answer takes a walk along the file system.
@cache
def kind_of_path(path: str) -> int:
    if path.startswith(_TORCHSAN):
        return OURS
    if path.startswith("<"):
        # Cells of a notebook and typed lines are the user's; frozen and generated code is not.
        return USER if path.startswith(("<ipython", "<stdin", "<string")) else LIBRARY
    installed = path.startswith(_PACKAGES) or "site-packages" in path or "dist-packages" in path
    if not installed and _is_inductors(path):
        return TORCH
    if installed or path.startswith(_STDLIB):
        # An environment often lies below the project's folder: only a root inside it makes its code the user's.
        roots = [root for root in _user_roots if _is_installed(root)]
        # To follow links takes a walk along the file system, for thousands of modules.
        real = os.path.realpath(path) if roots else path
        if any(path.startswith(root) or real.startswith(root) for root in roots):
            return USER
        return TORCH if installed and f"{os.sep}torch{os.sep}" in path else LIBRARY
    return USER


def _is_inductors(path: str) -> bool:
    """A file that inductor wrote: the lines in it are nobody's, and another run has others."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    return f"{os.sep}torchinductor_" in path or bool(cache and path.startswith(os.path.join(cache, "")))


def is_stdlib(path: str) -> bool:
    return path.startswith((*_STDLIB, "<"))


_COMPILERS = tuple(f"{os.sep}torch{os.sep}{part}{os.sep}" for part in ("_dynamo", "_functorch", "_inductor"))
_compilers: dict[int, bool] = {}


def is_compilers(code: CodeType) -> bool:
    """Code of torch's compilers: what it writes is no line of the user's."""
    known = _compilers.get(id(code))
    if known is None:
        path = code.co_filename
        made = _is_inductors(path) or any(part in path for part in _COMPILERS)
        known = _compilers[id(code)] = kind_of(code) == TORCH and made
    return known


def _is_installed(folder: str) -> bool:
    return folder.startswith(_PACKAGES) or "site-packages" in folder or "dist-packages" in folder


def kind_of(code: CodeType) -> int:
    kind = _kinds.get(id(code))
    if kind is None:
        kind = _kinds[id(code)] = kind_of_path(code.co_filename)
        _codes.append(code)
    return kind


def role_of(code: CodeType) -> int:
    kind = kind_of(code)
    if kind == USER:
        role = ENDS
    elif is_compilers(code):
        role = COMPILERS
    else:
        # The library line worth showing is the innermost that is not torch's own, if there is one.
        role = SHOWN if kind == LIBRARY and not is_stdlib(code.co_filename) else PASSED
    _roles[id(code)] = role
    return role


def place_in(code: CodeType, lasti: int) -> Place:
    """The source of one instruction of a code object."""
    positions = next(islice(code.co_positions(), lasti // 2, None), (None, None, None, None))
    line, end_line, column, end_column = positions
    path = shown_path(code.co_filename)
    line = line or code.co_firstlineno
    return Place(
        path=path,
        line=line,
        column=_characters(path, line, column) + 1,
        end_line=end_line or line,
        end_column=_characters(path, end_line or line, end_column) + 1,
        function=code.co_qualname,
    )


def _characters(path: str, line: int, offset: int | None) -> int:
    """Positions count UTF-8 bytes; people count characters."""
    if not offset:
        return 0
    text = source_line(path, line)
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


class Mark(list[str]):
    """What an autograd node carries of its site: a list of one string, since torch joins what it finds there.

    Nobody but nodes holds one, so that the number of references to it is the number of nodes that are alive.
    """

    __slots__ = ("site",)

    def __init__(self, site: Site, text: str) -> None:
        super().__init__([text])
        self.site = site


class Site:
    """A line of the program."""

    __slots__ = ("__dict__", "code", "hooked", "lasti", "library", "mark", "module", "twins")

    def __init__(self, code: CodeType, lasti: int, library: tuple[CodeType, int] | None) -> None:
        self.code = code
        self.lasti = lasti
        self.library = library
        # Set on the twin that marks nodes whose saved values are in the hands of saved-tensor hooks.
        self.hooked = False
        # The module that was running, on the twins that `run --memory` makes.
        self.module = ""
        self.twins: dict[tuple[bool, str], Site] = {}
        line = next((p[0] for p in islice(code.co_positions(), lasti // 2, None)), None)
        text = f'  File "{code.co_filename}", line {line or code.co_firstlineno}, in {code.co_name}\n'
        self.mark = Mark(self, text)

    @cached_property
    def place(self) -> Place:
        return place_in(self.code, self.lasti)

    @cached_property
    def library_place(self) -> Place | None:
        return place_in(*self.library) if self.library else None

    def _again(self) -> Site:
        return Site(self.code, self.lasti, self.library)

    def marked(self, *, hooked: bool, module: str = "") -> Site:
        """The same line, with what is known of a node beyond it."""
        twin = self.twins.get((hooked, module))
        if twin is None:
            twin = self.twins[hooked, module] = self._again()
            twin.hooked, twin.module = hooked, module
        return twin


_sites: dict[tuple[int, ...], Site] = {}
_lock = threading.Lock()


def site_of(frame: FrameType | None) -> Site:
    """The site for the innermost frame given: the nearest user frame at or above it."""
    assert frame is not None
    code = frame.f_code
    site = _sites.get((id(code), frame.f_lasti))
    return site if site is not None else _site_slow(frame)


def _site_slow(frame: FrameType) -> Site:
    via: FrameType | None = None
    at: FrameType | None = frame
    compiled, roles = False, _roles
    while at is not None:
        role = roles.get(id(at.f_code))
        if role != PASSED:  # most are, and there are many of them
            if role is None:
                role = role_of(at.f_code)
            if role == ENDS:
                # Code that dynamo wrote calls compiled code on no line of its own: who called that is worth a line.
                if not (compiled and compat_compile.is_generated(at.f_code)):
                    break
            elif role == SHOWN and via is None:
                via = at
            elif role == COMPILERS:
                compiled = True
        at = at.f_back
    user = at or via or frame
    below = None if user is frame else (via if via is not None and via is not user else frame)
    key: tuple[int, ...]
    if below is None:
        key = (id(user.f_code), user.f_lasti)
    else:
        key = (id(user.f_code), user.f_lasti, id(below.f_code), below.f_lasti)
    site = _sites.get(key)
    if site is None:
        library = (below.f_code, below.f_lasti) if below is not None and kind_of(below.f_code) != OURS else None
        with _lock:
            _codes.extend((user.f_code, (below or user).f_code))
            site = _sites.setdefault(key, Site(user.f_code, user.f_lasti, library))
    return site


def register(code: Any, site: Site, lasti: int = 0) -> Any:
    """Let `site_of` know the site of an instruction of generated code, or of what stands for code; gives that back."""
    with _lock:
        if id(code) not in _kinds:
            _codes.append(code)
        _kinds[id(code)] = USER
        _roles[id(code)] = ENDS
        _sites[(id(code), lasti)] = site
    return code


def here(depth: int = 1) -> Site:
    """The site of the caller's caller, `depth` frames above this function."""
    return site_of(sys._getframe(depth + 1))


def user_frames(frame: FrameType | None, limit: int = 12) -> list[FrameType]:
    """The user's frames at and above this one, innermost first."""
    found: list[FrameType] = []
    while frame is not None and len(found) < limit:
        if kind_of(frame.f_code) == USER:
            found.append(frame)
        frame = frame.f_back
    return found


def frame_place(frame: FrameType) -> Place:
    known = _sites.get((id(frame.f_code), frame.f_lasti))
    if known is not None:
        return known.place
    return place_in(frame.f_code, frame.f_lasti)

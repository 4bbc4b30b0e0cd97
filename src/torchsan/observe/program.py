"""Runs a program as `python` would: same argv, path, `__main__`, exit code, signals and output."""

from __future__ import annotations

import builtins
import io
import linecache
import os
import runpy
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torchsan.errors import UsageError


class StopProgram(SystemExit):
    """Ends a program from inside, where no `except Exception` of its own can stop us, and without a traceback."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(frozen=True, slots=True)
class Program:
    """Code that is ready to run as `__main__`."""

    code: CodeType
    path: str
    search_path: str
    arguments: list[str]
    package: str | None = None
    spec: Any = None


def load_script(path: str, arguments: list[str]) -> Program:
    if not os.path.exists(path):
        raise UsageError(f"there is no file {path}")
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder; name the script to run, or use -m for a package")
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if b"\0" in source:
        raise UsageError(f"{path} is not Python source: it holds binary data")
    # As python does: `__file__` is absolute, `sys.argv[0]` as it was typed.
    full = os.path.abspath(path)
    code = compile_source(source, full, shown=path)
    return Program(code, full, os.path.dirname(os.path.realpath(path)), [path, *arguments])


def compile_source(source: bytes, path: str, shown: str) -> CodeType:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise UsageError(f"{shown}:{error.lineno or 1}: syntax error: {error.msg}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown} is not Python source: {error}") from None


def load_module(name: str, arguments: list[str]) -> Program:
    sys.path.insert(0, os.getcwd())
    try:
        _, spec, code = runpy._get_module_details(name)  # type: ignore[attr-defined]
    except (ImportError, AttributeError) as error:
        raise UsageError(f"-m {name}: {error}") from None
    except SyntaxError as error:
        raise UsageError(f"{error.filename}:{error.lineno or 1}: syntax error: {error.msg}") from None
    finally:
        sys.path.pop(0)
    path = spec.origin or code.co_filename
    return Program(code, path, os.getcwd(), [path, *arguments], spec.parent, spec)


def run(program: Program) -> int | str | None:
    """Run to the end; what `sys.exit` was given comes back. Other exceptions go on."""
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=program.path, __builtins__=builtins, __spec__=program.spec, __loader__=None, __cached__=None
    )
    if program.package is not None:
        main.__package__ = program.package
    # It stays there when the program has ended: its threads and atexit functions may still look at it.
    sys.modules["__main__"] = main
    sys.argv = program.arguments
    sys.path[0:1] = [program.search_path]
    try:
        exec(program.code, main.__dict__)
    except StopProgram:
        raise
    except SystemExit as stop:
        return stop.code
    finally:
        sys.stdout.flush()
    return None


def exit_status(code: int | str | None) -> int:
    """The exit status that python would give for `sys.exit(code)`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def print_traceback(error: BaseException, ours: Callable[[str], bool]) -> None:
    """The program's traceback, without our frames; by the program's own hook if it has one."""
    error.__traceback__ = _without(error.__traceback__, ours)
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    linecache.checkcache()
    traceback.print_exception(error)


def _without(tb: types.TracebackType | None, ours: Callable[[str], bool]) -> types.TracebackType | None:
    if tb is None:
        return None
    rest = _without(tb.tb_next, ours)
    if ours(tb.tb_frame.f_code.co_filename):
        return rest
    tb.tb_next = rest
    return tb

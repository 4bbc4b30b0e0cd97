"""A capture that fails, in the user's terms at the user's line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import CodeType

from torchsan.model import Place
from torchsan.model.capture_events import Cause, FailedWrite
from torchsan.model.source import shown_path, source_line
from torchsan.verify.causes import CauseFinder
from torchsan.verify.frames import is_users, raised_places, statement_at, text_of
from torchsan.verify.subject import one_line
from torchsan.verify.timing import OutOfTime

_FILE = re.compile(r'File "([^"]+)", line (\d+)')
_NO_SOURCE = re.compile(r"Failed to get source for <function (\S+) at")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, the deepest last."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def failing_places(method: str, error: BaseException) -> list[Place]:
    """The lines of the user's program through which the capture died, the deepest first."""
    for each in reversed(list(chain(error))):
        places = raised_places(each, below_torch=True)
        if places and method not in ("jit.script",):
            return places
        named = [(path, int(line)) for path, line in _FILE.findall(str(each)) if is_users(path)]
        if named:
            path, line = named[0] if method == "jit.script" else named[-1]
            return [_whole_line(path, line)]
    return []


def _whole_line(path: str, line: int) -> Place:
    shown = shown_path(path)
    text = source_line(shown, line)
    return Place(shown, line, len(text) - len(text.lstrip()) + 1, line, len(text) + 1)


def explain(method: str, error: BaseException) -> str:
    """One sentence on why a capture failed."""
    deepest = list(chain(error))[-1]
    sourceless = next((m for each in chain(error) if (m := _NO_SOURCE.search(str(each)))), None)
    if sourceless:
        return (
            f"TorchScript compiles source code, and `{sourceless.group(1)}`, which the model holds on to, has none "
            "(it was made at run time)"
        )
    kind, text = type(deepest).__name__, _COLOR.sub("", str(deepest))
    if isinstance(deepest, OutOfTime):
        return f"it did not finish: {deepest}"
    if kind == "GuardOnDataDependentSymNode" or "data-dependent" in text:
        found = re.search(r"data-dependent expression (.+?) \(unhinted", text)
        what = f" ({found.group(1)})" if found else ""
        return f"Python decides something by a tensor's value{what}, which export cannot know"
    if kind == "TracingCheckError":
        return "two runs of forward with the same input were not the same, so the trace was refused"
    if "INTERNAL ASSERT" in text:
        return "the tracer of torch broke on an internal check"
    if method == "jit.script":
        return "not TorchScript: " + _script_reason(text)
    if "Constraints violated" in text or kind == "UserError":
        return one_line(next((line for line in text.splitlines() if line.strip()), kind), 220)
    return f"{kind}: {one_line(text, 200)}"


def _script_reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if line.startswith(
            (
                "Expected",
                "Unsupported",
                "Unknown",
                "Python type",
                "Module",
                "undefined",
                "Cannot",
                "Could not",
                "Argument",
                "Return",
                "Only",
                "Class",
                "Variable",
                "Type",
            )
        ):
            return one_line(" ".join(lines[index : index + 1]))
    return one_line(lines[0] if lines else text)


def writes_in_place(place: Place) -> bool:
    """Whether the statement on a line writes to a tensor: `x_()`, `fill`, `x[i] =`, `+=`, `.data =`."""
    # The start alone: a place that is a whole line may end in a comment.
    statement = statement_at(replace(place, end_line=place.line, end_column=place.column))
    if statement is None or hasattr(statement, "body"):
        return False
    return any(_is_write(part) for part in ast.walk(statement))


def _all_text(error: BaseException) -> str:
    return " ".join(f"{type(each).__name__} {each}" for each in chain(error)).replace("DataDependent", "data-dependent")


def first_write(codes: Iterable[CodeType]) -> Place | None:
    """The first line of the user's functions that writes in place, for errors that name no line."""
    for code in codes:
        lines = sorted({line for _, _, line in code.co_lines() if line})
        for line in lines:
            place = _whole_line(code.co_filename, line)
            if line != code.co_firstlineno and writes_in_place(place):
                return place
    return None


def _is_write(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name == "fill" or (name.endswith("_") and not name.startswith("_"))
    if isinstance(node, ast.AugAssign):
        return True
    if isinstance(node, ast.Assign):
        return any(
            isinstance(t, ast.Subscript) or (isinstance(t, ast.Attribute) and t.attr == "data") for t in node.targets
        )
    return False


def failure_cause(finder: CauseFinder, method: str, error: BaseException, places: list[Place]) -> Cause | None:
    """The event that made a capture fail, where it is one that a rule knows."""
    kind = type(list(chain(error))[-1]).__name__
    if kind == "TracingCheckError" or "as a constant" in str(error):
        draws = finder.truth.visited.draws
        return finder.unsteady_state() or (draws[0] if draws else None) or finder.random_read_out()
    if method == "jit.script":
        return None
    if not places:
        written = first_write(finder.truth.visited.codes) if "INTERNAL ASSERT" in str(error) else None
        return FailedWrite(written, text_of(written)) if written is not None else None
    place, by_data = places[0], "data-dependent" in _all_text(error)
    # What was read out may have been handed to the function that could not go on with it.
    for each in places if by_data else places[:1]:
        found = finder.at_line(each, by_data)
        if found is not None:
            return found
    return FailedWrite(place, text_of(place)) if writes_in_place(place) else None

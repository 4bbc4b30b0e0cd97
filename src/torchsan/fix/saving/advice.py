"""The advice that people give, as edits of this program: in place, `del`, fewer copies, checkpoints."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from torchsan.fix.candidates import Sources
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.graphs import _carried
from torchsan.fix.source import Edit, Source, real
from torchsan.model import Span
from torchsan.model.memory import Memory, ModuleRow
from torchsan.model.source import real_path

COPIES = ("clone", "contiguous")
# Modules that keep less than this share of all are not worth a checkpoint.
LEAST_SHARE, CHECKPOINTS = 0.05, 3
_OPERATORS = {ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.Div: "/="}


@dataclass(frozen=True, slots=True)
class Idea:
    """One piece of advice at one place, or at several."""

    advice: str
    title: str
    source: Source
    edits: tuple[Edit, ...]


def ideas(memory: Memory, sources: Sources, paths: Iterable[str]) -> Iterator[list[Idea]]:
    """Groups of ideas: those of one kind belong together and are taken apart only where they fail together."""
    files = [source for path in paths if (source := sources.get(path)) is not None]
    layers = {row.kind for row in memory.modules if row.inplace is False}
    yield [idea for source in files for idea in _in_place(source, layers, _lines_in(memory, source))]
    yield [idea for source in files for idea in _without_copies(source)]
    yield [idea for source in files for idea in _deleted(source)]
    yield from ([idea] for idea in _checkpoints(memory, sources))


def _lines_in(memory: Memory, source: Source) -> set[int]:
    kept = {row.line for row in memory.kept if real(real_path(row.path)) == source.path}
    return kept | {row.call[1] for row in memory.modules if row.call and real(row.call[0]) == source.path}


# -- in place -------------------------------------------------------------------------------------------


def _in_place(source: Source, layers: set[str], lines: set[int]) -> Iterator[Idea]:
    imported = imported_names(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and not any(k.arg in ("inplace", None) for k in node.keywords):
            name = syntax.called(node)
            of_module = isinstance(node.func, ast.Name) or syntax.root_name(node.func) in imported
            if of_module and (name in layers or (node.args and _has_choice(name))):
                at = source.end(node) - 1
                comma = ", " if (node.args or node.keywords) and source.text[:at].rstrip()[-1] != "," else ""
                title = f"{shown(source, node)} in place, line {node.lineno}"
                yield Idea("in place", title, source, (Edit(at, at, f"{comma}inplace=True"),))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
            operator = _OPERATORS.get(type(node.value.op))
            if operator and syntax.same(node.targets[0], node.value.left) and _is_in_model(source, node, lines):
                text = f"{source.segment(node.targets[0])} {operator} {source.segment(node.value.right)}"
                edit = Edit(source.start(node), source.end(node), text)
                yield Idea("in place", f"{text}, line {node.lineno}", source, (edit,))


def imported_names(source: Source) -> set[str]:
    nodes = [node for node in ast.walk(source.tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {(alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names}


def _is_in_model(source: Source, node: ast.AST, lines: set[int]) -> bool:
    """In a function one of whose lines is known to compute with tensors; sums of plain numbers are of no interest."""
    scope = source.function_of(node)
    return scope is not None and any(scope.lineno <= line <= (scope.end_lineno or 0) for line in lines)


@cache
def _has_choice(name: str) -> bool:
    """Has torch.nn.functional a function of this name that can work in place?"""
    import torch.nn.functional as functional

    found = getattr(functional, name, None)
    try:
        return callable(found) and "inplace" in inspect.signature(found).parameters
    except (TypeError, ValueError):
        return False


# -- copies ---------------------------------------------------------------------------------------------


def _without_copies(source: Source) -> Iterator[Idea]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in COPIES and not node.args and not node.keywords:
            edit = Edit(source.end(node.func.value), source.end(node), "")
            title = f"without the copy in {shown(source, node)}, line {node.lineno}"
            yield Idea("remove copies", title, source, (edit,))


# -- del ------------------------------------------------------------------------------------------------


def _deleted(source: Source) -> Iterator[Idea]:
    """Names that nothing reads after a backward go before it."""
    for node in ast.walk(source.tree):
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or syntax.called(call) != "backward" or not isinstance(node, ast.stmt):
            continue
        names = _unread_after(source, node)
        edit = syntax.insert_before(source, node, f"del {', '.join(names)}") if names else None
        if edit is not None:
            title = f"del {', '.join(names)} before backward, line {node.lineno}"
            yield Idea("del before backward", title, source, (edit,))


def _unread_after(source: Source, backward: ast.stmt) -> list[str]:
    block = source.block_of(backward)
    before, after = block[: block.index(backward)], block[block.index(backward) :]
    scope = source.scope_of(backward)
    made = [name for one in before if isinstance(one, (ast.Assign, ast.AnnAssign)) for name in _bound(one)]
    read = {name for one in after for name in syntax.loads(one)}
    loop = source.loop_of(backward)
    read |= set(_carried(source, loop)) if loop is not None else set()
    last = (block[-1].end_lineno or block[-1].lineno) if block else backward.lineno
    for node in ast.walk(scope):
        # Read further down, or by a function that knows the name.
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno > last:
            read.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and node is not scope:
            read |= syntax.loads(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            read |= set(node.names)
    return [name for name in dict.fromkeys(made) if name not in read]


def _bound(statement: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


# -- checkpoints ----------------------------------------------------------------------------------------


def _checkpoints(memory: Memory, sources: Sources) -> Iterator[Idea]:
    """The calls whose modules keep most for the time that it takes to compute them again."""
    total = sum(row.bytes for row in memory.kept) or 1
    calls: dict[tuple[str, int, int, int, int], tuple[int, float]] = {}
    for row in memory.modules:
        if len(row.call) == 5 and row.calls:
            kept, seconds = calls.get(row.call, (0, 0.0))
            calls[row.call] = kept + _kept_in(memory, row), seconds + row.seconds / row.calls
    worth = [(kept / max(seconds, 1e-9), kept, call) for call, (kept, seconds) in calls.items()]
    worth = [one for one in sorted(worth, reverse=True) if one[1] >= LEAST_SHARE * total]
    made = 0
    for _, kept, (path, *at) in worth:
        source = sources.get(path)
        idea = _checkpoint(source, at, kept / total) if source is not None else None
        if idea is not None and made < CHECKPOINTS:
            made += 1
            yield idea


def _kept_in(memory: Memory, module: ModuleRow) -> int:
    inside = module.path + "."
    return sum(row.bytes for row in memory.kept if row.module == module.path or row.module.startswith(inside))


def _checkpoint(source: Source, at: list[int], share: float) -> Idea | None:
    span = Span("", at[0], at[1], at[2], at[3], "cause", "")
    call = source.expression(span)
    if not isinstance(call, ast.Call) or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    if any(keyword.arg is None for keyword in call.keywords) or source.function_of(call) is None:
        return None  # the outermost call of a model has nothing to gain: all of it would be computed again
    function = source.segment(call.func)
    begin, first = source.start(call), source.end(call.func)
    opening = source.text.index("(", first)
    rest = source.text[opening + 1 : source.end(call) - 1].strip().rstrip(",")
    given = f"{function}, {rest}" if rest else function
    text = f"torch.utils.checkpoint.checkpoint({given}, use_reentrant=False)"
    edits = (*syntax.with_import(source, "torch.utils.checkpoint"), Edit(begin, source.end(call), text))
    title = f"checkpoint {shown(source, call)}, line {call.lineno} ({math.floor(100 * share)} % of what is kept)"
    return Idea("checkpoint", title, source, edits)


def shown(source: Source, node: ast.AST) -> str:
    text = " ".join(source.segment(node).split())
    return f"`{text}`" if len(text) <= 40 else f"`{text[:39]}…`"

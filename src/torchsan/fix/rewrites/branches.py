"""Branches on data, which a capture takes once and for all: both sides are computed and `torch.where` chooses."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax, writes
from torchsan.fix.rewrites.conditions import as_tensors, condition
from torchsan.fix.source import Edit, Function, Source

Found = Iterator[tuple[str, Iterable[Edit]]]


@dataclass(frozen=True, slots=True)
class Side:
    """What one side of a branch leaves behind: the value of each target it binds, or what it returns."""

    values: dict[str, ast.expr]
    returned: ast.expr | None = None


def where_branch(spot: Spot) -> Found:
    """`torch.where(condition, a, b)` for `a if condition else b` and for `if` statements that choose values."""
    source, torch = spot.source, syntax.torch_name(spot.source)
    if torch is None:
        return
    edits: list[Edit] = []
    for branch in branches_of(spot):
        if isinstance(branch, ast.IfExp):
            text = chosen(torch, condition(branch.test, torch), branch.body, branch.orelse)
            edits.append(Edit(source.start(branch), source.end(branch), text))
        else:
            edits += statement_edits(source, branch, torch)
    if edits:
        yield "compute both sides and choose with torch.where", [*edits, *numbers_above(spot, torch)]


def numbers_above(spot: Spot, torch: str) -> list[Edit]:
    """The statement that read the value out, where it is not the branch itself: the value stays a tensor."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        if any(isinstance(node, ast.IfExp) for node in ast.walk(statement.value)):
            return []
        value = statement.value
        text = as_tensors(value, torch)
        if text != ast.unparse(value):
            return [Edit(source.start(value), source.end(value), text)]
    return []


def branches_of(spot: Spot) -> list[ast.If | ast.IfExp]:
    """The branches that the read-out decides: around it, or those that test the name it is kept under."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if statement is None:
        return []
    begin, end = source.bounds(spot.span)
    if isinstance(statement, ast.If) and begin == source.start(statement):
        return [statement]
    scope = source.scope_of(statement)
    every = [n for n in ast.walk(scope) if isinstance(n, (ast.If, ast.IfExp))]
    here = [n for n in every if source.start(n.test) <= begin and end <= source.end(n.test)]
    if here:
        return here[-1:]
    kept = _kept_under(statement)
    return [n for n in every if kept & _tested(n.test)]


def _kept_under(statement: ast.stmt) -> set[str]:
    """Names and attributes that a statement binds."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    return {ast.unparse(t) for t in targets if isinstance(t, (ast.Name, ast.Attribute))}


def _tested(test: ast.expr) -> set[str]:
    return {ast.unparse(n) for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))}


def chosen(torch: str, test: str, yes: ast.expr, no: ast.expr) -> str:
    """One side or the other; of tuples, part by part."""
    if isinstance(yes, ast.Tuple) and isinstance(no, ast.Tuple) and len(yes.elts) == len(no.elts):
        return ", ".join(chosen(torch, test, a, b) for a, b in zip(yes.elts, no.elts, strict=True))
    if syntax.same(yes, no):
        return ast.unparse(yes)
    return f"{torch}.where({test}, {ast.unparse(yes)}, {ast.unparse(no)})"


# -- statements -------------------------------------------------------------------------------------------------


def statement_edits(source: Source, branch: ast.If, torch: str, test: str = "") -> list[Edit]:
    """An `if` statement as assignments, or a return, of what torch.where chooses."""
    if not source.owns_its_lines(branch) or _is_elif(source, branch):
        return []
    test = test or condition(branch.test, torch)
    yes, no = _side(source, branch.body, torch), _side(source, branch.orelse, torch)
    if yes is None or no is None:
        return []
    if yes.returned is not None or no.returned is not None:
        return _returning(source, branch, yes, no, test, torch)
    lines = assignments(yes, no, test, torch, syntax.names_in(source.scope_of(branch)))
    return [_replaced(source, branch, lines)] if lines else []


def _is_elif(source: Source, branch: ast.If) -> bool:
    return source.text[source.start(branch) :].startswith("elif")


def _replaced(source: Source, statement: ast.stmt, lines: Iterable[str]) -> Edit:
    return Edit(
        source.start(statement),
        source.end(statement),
        f"{source.newline}{source.indent(statement)}".join(lines),
    )


def _side(source: Source, block: list[ast.stmt], torch: str) -> Side | None:
    """What a block leaves behind, if it does nothing but bind values and perhaps return one."""
    values: dict[str, ast.expr] = {}
    for statement in block:
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.Return):
            if statement.value is None:
                return None
            return Side(values, _known(statement.value, values))
        bound = _bound(source, statement, torch)
        if bound is None:
            return None
        for target, value in bound:
            values[target] = _known(value, values)
    return Side(values)


def _bound(source: Source, statement: ast.stmt, torch: str) -> list[tuple[str, ast.expr]] | None:
    """The targets of a statement with their new values; nothing when it does something else."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            return [(ast.unparse(t), v) for t, v in zip(target.elts, value.elts, strict=True)]
        return [(ast.unparse(target), value)] if isinstance(target, syntax.Place) else None
    if isinstance(statement, ast.AugAssign):
        left = ast.parse(ast.unparse(statement.target), mode="eval").body
        return [(ast.unparse(statement.target), ast.BinOp(left, statement.op, statement.value))]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if (
            syntax.is_inplace_call(call)
            and isinstance(call.func, ast.Attribute)
            and not syntax.is_module_function(call)
        ):
            name = call.func.attr
            if isinstance(call.func.value, syntax.Place) and name not in writes.NO_TWIN and name.endswith("_"):
                twin = copy.deepcopy(call)
                assert isinstance(twin.func, ast.Attribute)
                twin.func.attr = name[:-1]
                return [(ast.unparse(call.func.value), twin)]
    if isinstance(statement, ast.If):
        yes, no = _side(source, statement.body, torch), _side(source, statement.orelse, torch)
        if yes is None or no is None or yes.returned is not None or no.returned is not None:
            return None
        test = condition(statement.test, torch)
        found = []
        for name in dict.fromkeys((*yes.values, *no.values)):
            text = chosen(torch, test, *_both(name, yes, no))
            found.append((name, ast.parse(text, mode="eval").body))
        return found
    return None


def _known(value: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """An expression in terms of what was there before the block."""

    class Put(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                known = values.get(ast.unparse(node))
                if known is not None:
                    return copy.deepcopy(known)
            return super().generic_visit(node)

    found: ast.expr = Put().visit(copy.deepcopy(value))
    return found


def _both(target: str, yes: Side, no: Side) -> tuple[ast.expr, ast.expr]:
    old = ast.parse(target, mode="eval").body
    return yes.values.get(target, old), no.values.get(target, old)


def assignments(yes: Side, no: Side, test: str, torch: str, taken: set[str]) -> list[str]:
    """One line for each target that either side binds."""
    targets = list(dict.fromkeys((*yes.values, *no.values)))
    lines: list[str] = []
    if len(targets) > 1:
        name = syntax.free_name("chosen", taken)
        lines.append(f"{name} = {test}")
        test = name
    texts = [chosen(torch, test, *_both(target, yes, no)) for target in targets]
    read = [set().union(*(_tested(value) for value in _both(t, yes, no))) for t in targets]
    if any(first in read[k] for k in range(len(targets)) for first in targets[:k]):
        # A line would read what another has just changed: all at once.
        return [*lines, f"{', '.join(targets)} = {', '.join(texts)}"]
    return [*lines, *(f"{target} = {text}" for target, text in zip(targets, texts, strict=True))]


def _returning(source: Source, branch: ast.If, yes: Side, no: Side, test: str, torch: str) -> list[Edit]:
    if yes.returned is not None and no.returned is not None:
        return [_replaced(source, branch, [f"return {chosen(torch, test, yes.returned, no.returned)}"])]
    if branch.orelse and (yes.values or no.values):
        return []
    early = yes.returned if yes.returned is not None else no.returned
    assert early is not None
    if yes.returned is None:
        test = f"{torch}.logical_not({test})"
        if branch.body and yes.values:
            return []
    return _early_return(source, branch, early, test, torch)


def _early_return(source: Source, branch: ast.If, early: ast.expr, test: str, torch: str) -> list[Edit]:
    """The rest of the function runs in any case; each of its returns chooses."""
    function = source.function_of(branch)
    if function is None or source.loop_of(branch) is not None or branch not in function.body:
        return []
    rest = function.body[function.body.index(branch) + 1 :]
    returns = [n for s in rest for n in ast.walk(s) if isinstance(n, ast.Return)]
    if not rest or not isinstance(rest[-1], ast.Return) or any(r.value is None for r in returns):
        return []
    if any(isinstance(n, Function | ast.Lambda) for s in rest for n in ast.walk(s)):
        return []
    edits: list[Edit] = []
    if len(rest) == 1:
        first, last = source.line_start(branch.lineno), source.line_start((branch.end_lineno or 0) + 1)
        edits.append(Edit(first, last, ""))
    else:
        taken = syntax.names_in(function)
        is_early, value = syntax.free_name("is_early", taken), syntax.free_name("early", taken)
        edits.append(_replaced(source, branch, [f"{is_early} = {test}", f"{value} = {ast.unparse(early)}"]))
        test = is_early
        if not isinstance(early, ast.Tuple):
            early = ast.Name(value, ast.Load())
    for one in returns:
        assert one.value is not None
        text = chosen(torch, test, early, one.value)
        edits.append(Edit(source.start(one), source.end(one), f"return {text}"))
    return edits


# -- torch.cond, and what a capture need not do -----------------------------------------------------------------


def cond_branch(spot: Spot) -> Found:
    """`torch.cond` runs one side only; for exports, where the other side may not be computed."""
    source, torch = spot.source, syntax.torch_name(spot.source)
    if torch is None or "torch.export" not in spot.finding.message:
        return
    for branch in branches_of(spot):
        if not isinstance(branch, ast.If) or not source.owns_its_lines(branch) or _is_elif(source, branch):
            continue
        yes, no = _side(source, branch.body, torch), _side(source, branch.orelse, torch)
        if yes is None or no is None or yes.returned is not None or no.returned is not None:
            continue
        targets = list(dict.fromkeys((*yes.values, *no.values)))
        if not targets or not all(t.isidentifier() for t in targets):
            continue
        pairs = [_both(target, yes, no) for target in targets]
        sides = [", ".join(f"({ast.unparse(v)}).clone()" for v in side) for side in zip(*pairs, strict=True)]
        test = condition(branch.test, torch)
        names = f"{', '.join(targets)}{',' * (len(targets) == 1)}"
        text = f"{names} = {torch}.cond({test}, lambda: ({sides[0]},), lambda: ({sides[1]},))"
        yield "choose with torch.cond", [_replaced(source, branch, [text]), *numbers_above(spot, torch)]


def skip_while_capturing(spot: Spot) -> Found:
    """A check or message that belongs to Python: left out while a capture is made."""
    source, torch = spot.source, syntax.torch_name(spot.source)
    if torch is None:
        return
    for branch in branches_of(spot):
        if not isinstance(branch, ast.If) or branch.orelse or not _only_tells(branch.body):
            continue
        guard = (
            f"{torch}.compiler.is_exporting()"
            if "torch.export" in spot.finding.message
            else f"{torch}.jit.is_tracing()"
        )
        start, end = source.start(branch.test), source.end(branch.test)
        yield "leave this check out while capturing", [Edit(start, start, f"not {guard} and ("), Edit(end, end, ")")]


def _only_tells(block: list[ast.stmt]) -> bool:
    def tells(statement: ast.stmt) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        printed = isinstance(call, ast.Call) and syntax.called(call) in ("print", "warn", "warning", "info", "debug")
        return printed or isinstance(statement, (ast.Raise, ast.Pass, ast.Assert))

    return all(tells(statement) for statement in block)

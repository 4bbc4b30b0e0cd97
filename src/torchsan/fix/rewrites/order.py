"""The order of things: steps, forwards and backwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.linked import Links
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Edit, Function, Source, real
from torchsan.model import Finding, Span
from torchsan.model.source import real_path

Found = Iterator[tuple[str, Iterable[Edit]]]
NOT_GRADIENTS = {"no_grad", "enable_grad", "set_grad_enabled", "requires_grad", "requires_grad_", "is_grad_enabled"}


def _in_one_block(spot: Spot) -> tuple[ast.stmt, ast.stmt, list[ast.stmt]] | None:
    """The statement that writes and the one that needs, in the block that holds both."""
    needed = next((s for s in spot.spots("needed") if s.source is spot.source), None)
    return _both(spot.source, spot.span, needed.span) if needed is not None else None


def _both(source: Source, written: Span, needed: Span) -> tuple[ast.stmt, ast.stmt, list[ast.stmt]] | None:
    write, backward = source.statement(written), source.statement(needed)
    if write is None or backward is None:
        return None
    lines = {id(node) for node in (backward, *source.above(backward))}
    for one in (write, *source.above(write)):
        if isinstance(one, Function | ast.ClassDef):
            return None  # definitions stay where they are
        if isinstance(one, ast.stmt):
            block = source.block_of(one)
            other = next((s for s in block if id(s) in lines), None)
            if other is not None:
                return (one, other, block) if block.index(one) < block.index(other) else None
    return None


def loss_comes_late(source: Source, finding: Finding) -> bool | None:
    """Is the loss put together after the step, from what was computed before it? None where they are not side by side.

    Then it may be meant for the weights before the step or for those after it; else only for those before.
    """
    written = next((span for span in finding.spans if span.role == "mutated"), None)
    needed = next((span for span in finding.spans if span.role == "needed"), None)
    if written is None or needed is None or real(real_path(written.path)) != source.path:
        return None
    found = _both(source, written, needed) if real(real_path(needed.path)) == source.path else None
    if found is None:
        return None
    step, backward, block = found
    roots = syntax.loads(backward) if isinstance(backward, ast.Expr) else _backward_roots(backward)
    between = block[block.index(step) + 1 : block.index(backward)]
    return any(syntax.stores(statement) & roots for statement in between)


def steps_behind_the_loss(old: Source, new: Source, finding: Finding) -> bool:
    """Does the edit put a step behind a loss that was computed after it, and with the weights that it left?"""
    written = next((span for span in finding.spans if span.role == "mutated"), None)
    step = old.statement(written) if written is not None and real(real_path(written.path)) == old.path else None
    if step is None or not loss_comes_late(old, finding):
        return False
    before, after = (_order_of(source, ast.dump(step)) for source in (old, new))
    return bool((before[1] & after[0]) - before[0])


def _order_of(source: Source, step: str) -> tuple[set[str], set[str]]:
    """The statements that stand before a step, beside it, and those that stand behind it."""
    sides: tuple[set[str], set[str]] = (set(), set())
    for node in ast.walk(source.tree):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None)):
            dumps = [ast.dump(one) for one in block] if isinstance(block, list) else []
            if step in dumps:
                at = dumps.index(step)
                sides[0].update(dumps[:at])
                sides[1].update(dumps[at + 1 :])
    return sides


def moved(source: Source, moving: list[ast.stmt], before: ast.stmt) -> list[Edit] | None:
    if not all(source.owns_its_lines(s) for s in (*moving, before)):
        return None
    at = source.line_start(before.lineno)
    edits, text = [], ""
    for statement in moving:
        first, last = source.line_start(statement.lineno), source.line_start((statement.end_lineno or 0) + 1)
        piece = source.text[first:last]
        text += piece if piece.endswith(("\n", "\r")) else piece + source.newline
        edits.append(Edit(first, last, ""))
    return [*edits, Edit(at, at, text)]


def step_later(spot: Spot) -> Found:
    """Step after the last backward that needs the old weights."""
    found = _in_one_block(spot)
    if found is not None:
        yield from _later(spot, *found)


def step_later_apart(spot: Spot) -> Found:
    """Step after a backward that then leaves alone what this step trains: `backward(inputs=…)`."""
    found = _in_one_block(spot)
    if found is None:
        return
    source, (_, backward, block) = spot.source, found
    call = backward.value if isinstance(backward, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or syntax.called(call) != "backward"
        or any(k.arg == "inputs" for k in call.keywords)
    ):
        return
    trained = next((m for s in block[block.index(backward) + 1 :] if (m := stepped_modules(source, s))), [])
    if not trained:
        return
    inputs = f"list({trained[0]}.parameters())"
    if len(trained) > 1:
        inputs = "[" + ", ".join(f"*{module}.parameters()" for module in trained) + "]"
    at = source.end(call) - 1
    comma = ", " if call.args or call.keywords else ""
    for title, edits in _later(spot, *found):
        yield f"{title}, which is for {', '.join(trained)} alone", [*edits, Edit(at, at, f"{comma}inputs={inputs}")]


def call_later(spot: Spot) -> Found:
    """The call of a function that writes what a backward needs goes behind that backward."""
    source, backward = spot.source, spot.source.statement(spot.span)
    writers = [
        one.source.function_of(one.source.statement(one.span) or one.source.tree) for one in spot.spots("mutated")
    ]
    names = {writer.name for writer in writers if writer is not None}
    for other in (backward, *source.above(backward)) if backward is not None else ():
        if isinstance(other, Function | ast.ClassDef):
            return
        block = source.block_of(other) if isinstance(other, ast.stmt) else []
        for one in block[: block.index(other)] if isinstance(other, ast.stmt) and other in block else ():
            call = one.value if isinstance(one, ast.Expr) else None
            writes = isinstance(call, ast.Call) and syntax.called(call) in names
            # Who looks at gradients, and makes none, would see those of that backward.
            if writes and isinstance(other, ast.stmt) and not asks_for_gradients(source, one, of_others=True):
                yield from _later(spot, one, other, block)


def asks_for_gradients(source: Source, statement: ast.stmt, *, of_others: bool = False) -> bool:
    """Reads or writes a gradient, as far as the program's own code goes; one that it did not make, if so asked."""
    whole = [node for _, node in Links([source]).reached([(source, statement)])]
    nodes = [n for one in whole for n in ast.walk(one) if isinstance(n, (ast.Attribute, ast.Name))]
    said = {n.attr if isinstance(n, ast.Attribute) else n.id for n in nodes}
    if of_others and said & {"backward", "zero_grad"}:
        return False
    return any("grad" in name for name in said - NOT_GRADIENTS) or bool(said & {"backward", "step"} and not of_others)


def _later(spot: Spot, step: ast.stmt, backward: ast.stmt, block: list[ast.stmt]) -> Found:
    after = block[block.index(backward) + 1 :]
    if not spot.source.owns_its_lines(step):
        return
    crossed = block[block.index(step) + 1 : block.index(backward)]
    if any(depends(spot.source, step, other) for other in crossed):
        return
    what = "step" if stepped_modules(spot.source, step) or "step" in ast.unparse(step) else "do this"
    title = f"{what} after the backward of line {backward.lineno}"
    if after:
        edits = moved(spot.source, [step], after[0])
        if edits is not None:
            yield title, edits
        return
    source = spot.source
    first, last = source.line_start(step.lineno), source.line_start((step.end_lineno or 0) + 1)
    edit = syntax.insert_after(source, backward, source.text[first:last].strip())
    if edit is not None:
        yield title, [Edit(first, last, ""), edit]


def depends(source: Source, moved: ast.stmt, other: ast.stmt) -> bool:
    """Does one of the statements touch what the other reads or writes? By names, and calls may touch anything named."""
    ours, theirs = _touched(source, moved), _touched(source, other)
    mine, his = _named(moved), _named(other)
    return bool(ours & (his | theirs) or theirs & (mine | ours)) or _runs_own_code(source, other)


def _named(statement: ast.stmt) -> set[str]:
    nodes = (n for n in ast.walk(statement) if isinstance(n, (ast.Name, ast.Attribute)))
    return {syntax.dotted_root(node) for node in nodes} - {"", "self"}


def _touched(source: Source, statement: ast.stmt) -> set[str]:
    """Names that a statement binds, and objects whose methods it calls or that it hands to a call."""
    found = syntax.stores(statement) | set(stepped_modules(source, statement))
    for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
        parts = [*call.args, *(k.value for k in call.keywords)]
        if isinstance(call.func, ast.Attribute):
            parts.append(call.func.value)
        found |= {syntax.dotted_root(part) for part in parts if not syntax.is_library(syntax.root_name(part))}
    return found - {""}


def _runs_own_code(source: Source, statement: ast.stmt) -> bool:
    """Calls a function of this file by its name: what that reads and writes is not seen here."""
    own = {n.name for n in ast.walk(source.tree) if isinstance(n, Function)}
    calls = (n for n in ast.walk(statement) if isinstance(n, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id in own for call in calls)


def forward_later(spot: Spot) -> Found:
    """Compute the loss after the step, with the weights that its backward will meet."""
    found = _in_one_block(spot)
    if found is None:
        return
    step, backward, block = found
    roots = syntax.loads(backward) if isinstance(backward, ast.Expr) else _backward_roots(backward)
    position = block.index(step)
    above: list[ast.stmt] = [s for s in block[:position] if isinstance(s, (ast.Assign, ast.AugAssign))]
    makers = [s for s in above if syntax.stores(s) & roots]
    if not makers:
        return
    target = block[position + 1]
    for moving in (makers[-1:], _slice(block[:position], makers[-1])):
        names = {name for s in moving for name in syntax.stores(s)}
        between = [s for s in block[block.index(moving[0]) : position + 1] if s not in moving]
        inputs = {name for s in moving for name in syntax.loads(s)}
        if any(syntax.loads(s) & names or syntax.stores(s) & inputs for s in between):
            continue
        edits = moved(spot.source, moving, target)
        if edits is not None:
            yield f"compute {', '.join(sorted(names))} after the step", edits


def stepped_modules(source: Source, step: ast.stmt) -> list[str]:
    """Modules whose parameters the optimizer of `optimizer.step()` was given."""
    calls = [n for n in ast.walk(step) if isinstance(n, ast.Call) and syntax.called(n) == "step"]
    owners = [ast.unparse(c.func.value) for c in calls if isinstance(c.func, ast.Attribute)]
    found: list[str] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and any(ast.unparse(t) in owners for t in node.targets):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Attribute) and inner.attr == "parameters":
                    found.append(ast.unparse(inner.value))
    return list(dict.fromkeys(found))


def forward_again(spot: Spot) -> Found:
    """A forward that two losses share is computed once more after the step of the first."""
    found = _in_one_block(spot)
    if found is None:
        return
    source, (step, backward, block) = spot.source, found
    before = block[: block.index(step)]
    wanted = _names_needed(block[block.index(step) : block.index(backward) + 1], before)
    for saved in spot.spots("saved"):
        forward = saved.source.statement(saved.span) if saved.source is source else None
        if forward not in before:
            continue
        chain, made = [], syntax.stores(forward)
        for statement in before[before.index(forward) :]:
            names = syntax.stores(statement)
            fed = statement is forward or bool(syntax.loads(statement) & made)
            if isinstance(statement, ast.Assign) and fed and names & wanted:
                chain.append(statement)
                made = made | names
        lines = [source.segment(statement) for statement in chain]
        edit = syntax.insert_after(source, step, *lines) if lines and not any("\n" in t for t in lines) else None
        if edit is not None:
            names = {name for statement in chain for name in syntax.stores(statement)}
            yield f"compute {', '.join(sorted(names))} again after the step", [edit]
            return


def _names_needed(after: list[ast.stmt], before: list[ast.stmt]) -> set[str]:
    """Names of `before` that the statements of `after` read, also through others."""
    wanted = {name for statement in after for name in syntax.loads(statement)}
    for statement in reversed(before):
        if isinstance(statement, ast.Assign) and syntax.stores(statement) & wanted:
            wanted = wanted | syntax.loads(statement)
    return wanted


def _backward_roots(statement: ast.stmt) -> set[str]:
    """Names on which a statement, perhaps a whole block, calls backward."""
    calls = [n.func for n in ast.walk(statement) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return {syntax.root_name(func.value) for func in calls if func.attr == "backward"}


def _slice(block: list[ast.stmt], last: ast.stmt) -> list[ast.stmt]:
    """The statements that only feed the last one: assignments whose names nothing else reads."""
    moving = [last]
    for statement in reversed(block[: block.index(last)]):
        if not isinstance(statement, ast.Assign):
            continue
        names = syntax.stores(statement)
        if not any(names & syntax.loads(s) for s in moving):
            continue
        rest = [s for s in block[block.index(statement) + 1 :] if s not in moving]
        if not any(names & syntax.loads(s) for s in rest) and _calls_something(statement):
            moving.insert(0, statement)
    return moving


def _calls_something(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))

"""Writes to new memory: the out-of-place twin of a write, or a copy that is written instead."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.source import Edit, Source
from torchsan.fix.trial import HELD

Found = Iterator[tuple[str, Iterable[Edit]]]
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
# In-place methods without a twin of the same name.
NO_TWIN = {
    *("copy_", "normal_", "uniform_", "random_", "bernoulli_", "cauchy_", "exponential_", "geometric_"),
    *("log_normal_", "fill_", "zero_", "set_", "resize_", "apply_", "map_", "squeeze_", "t_"),
}


def out_of_place(spot: Spot, *, unread: bool = False) -> Found:
    """The twin of a write, bound to the name that was written; also where nobody reads it, if `unread`."""
    source, statement = spot.source, spot.source.statement(spot.span)
    others = other_names(spot, statement) if statement is not None else []
    if others is None:
        return  # another tensor must see the change, and cannot be given it
    if statement is not None and _writes_part(spot, statement):
        return  # `x[0] = x[0] + 1` would write the same memory
    for title, edits in twins(spot, unread=unread):
        if not others or statement is None:
            yield title, edits
            continue
        written = written_in(spot, statement)
        variable = syntax.variable_of(written) if written is not None else None
        edit = syntax.insert_after(source, statement, f"{' = '.join(others)} = {ast.unparse(variable or statement)}")
        if edit is not None and isinstance(variable, ast.Name) and syntax.same(written or variable, variable):
            yield f"{title}, and {' and '.join(others)} with it", [*edits, edit]
        # The other names may be meant to keep what they had.
        yield title, edits


def other_names(spot: Spot, statement: ast.stmt) -> list[str] | None:
    """Names that must be bound to the new value as well; nothing at all where that cannot be done."""
    written = written_in(spot, statement)
    variable = syntax.variable_of(written) if written is not None else None
    own = ast.unparse(variable) if variable is not None else ""
    found: list[str] = []
    for alias in spot.aliases:
        if alias.apart and isinstance(written, (ast.Name, ast.Attribute)):
            continue  # other elements, which a new value for this variable leaves as they are
        if alias.name == HELD:
            # What was given a name's value may be meant to keep it; of an attribute that is not to be expected.
            if not isinstance(written, ast.Name) and alias.depth > 1:
                return None  # something that outlives the name holds the memory, and would see the old value
            continue
        source = spot.sources.get(alias.path)
        if source is None or (alias.depth == 0 and alias.name == own):
            continue
        at = statement if alias.depth == 0 else source.statement_at(alias.line)
        if at is None or alias.name in syntax.stores(at):
            continue  # bound anew by the very statement
        if not syntax.is_read_again(source, at, ast.Name(alias.name, ast.Load())):
            continue
        if alias.depth or not alias.whole:
            return None
        found.append(alias.name)
    return found


def _writes_part(spot: Spot, statement: ast.stmt) -> bool:
    """`x[0] += 1` for a tensor: seen from the memory that the name held, unlike a list's."""
    if isinstance(statement, ast.Assign):
        return False
    written = written_in(spot, statement)
    tensors = {alias.name for alias in spot.aliases if alias.depth == 0}
    is_part = written is not None and not isinstance(written, (ast.Name, ast.Attribute))
    return written is not None and is_part and syntax.root_name(written) in tensors


def twins(spot: Spot, *, unread: bool = False) -> Found:
    source, statement = spot.source, spot.source.statement(spot.span)
    if isinstance(statement, ast.AugAssign):
        yield from _augmented(source, statement, unread=unread)
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Subscript) and not _calls(spot, statement):
            yield from _indexed(source, statement, target)
        elif isinstance(target, ast.Attribute) and target.attr == "data":
            yield from _assigned_data(source, statement, target)
    if statement is not None:
        for call in _calls(spot, statement):
            yield from _call(source, statement, call, rebind=True, unread=unread)


def fresh_result(spot: Spot) -> Found:
    """The twin of a write inside an expression; the name that was written keeps its old value."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if isinstance(statement, ast.AugAssign):
        yield from _augmented(source, statement)
    elif statement is not None:
        for call in _calls(spot, statement):
            yield from _call(source, statement, call, rebind=isinstance(statement, ast.Expr))


def clone_before_write(spot: Spot) -> Found:
    """A copy just before the write, for all names that hold the memory: what was saved is then not what is written."""
    source, statement = spot.source, spot.source.statement(spot.span)
    others = other_names(spot, statement) if statement is not None else None
    if statement is None or others is None:
        return
    written = written_in(spot, statement)
    variable = syntax.variable_of(written) if written is not None else None
    if variable is None or not (others or syntax.is_read_again(source, statement, variable)):
        return
    name = source.segment(variable)
    line = " = ".join([*others, name, f"{name}.clone()"])
    edit = syntax.insert_before(source, statement, line)
    if edit is not None:
        yield f"write to a copy: {line} before the write", [edit]


def written_in(spot: Spot, statement: ast.stmt) -> ast.expr | None:
    """The expression whose memory a statement writes."""
    if isinstance(statement, ast.AugAssign):
        return statement.target
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Subscript, ast.Attribute)):
        return statement.targets[0]
    for call in _calls(spot, statement):
        return _receiver(call)
    return None


def _calls(spot: Spot, statement: ast.stmt) -> list[ast.Call]:
    """In-place calls of the statement inside the span (or around it), the first to run first."""
    begin, end = spot.source.bounds(spot.span)
    found = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and syntax.is_inplace_call(n)]
    source = spot.source
    inside = [n for n in found if begin <= source.start(n) and source.end(n) <= end]
    around = [n for n in found if source.start(n) <= begin and end <= source.end(n)]
    return sorted(inside or around, key=lambda n: (source.end(n), source.start(n)))[:2]


def _augmented(source: Source, statement: ast.AugAssign, *, unread: bool = False) -> Found:
    target, operator = source.segment(statement.target), OPERATORS[type(statement.op)]
    value = source.segment(statement.value)
    if not unread and not syntax.is_read_again(source, statement, statement.target):
        return
    right = f"({value})" if syntax.needs_parentheses(statement.value, statement.op) else value
    # Only the operator changes, so that comments and line breaks inside the value stay.
    start, end = source.end(statement.target), source.start(statement.value)
    edits = [Edit(start, end, f" = {target} {operator} ")]
    if right != value:
        first, last = source.start(statement.value), source.end(statement.value)
        opened = source.text[source.end(statement.target) : first].rstrip().endswith("(")
        if not opened:
            edits += [Edit(first, first, "("), Edit(last, last, ")")]
        else:
            edits[0] = Edit(start, end, f" = {target} {operator} (")
    yield f"{target} = {target} {operator} {_short(right)}", edits


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else "…"


def _indexed(source: Source, statement: ast.Assign, target: ast.Subscript) -> Found:
    """`x[mask] = value` as an expression of x."""
    tensor, index = source.segment(target.value), source.segment(target.slice)
    if not isinstance(target.value, (ast.Name, ast.Attribute)) or isinstance(target.slice, (ast.Slice, ast.Tuple)):
        return
    if syntax.is_number(target.slice) or _counts(source, target.slice):
        return
    if not syntax.is_read_again(source, statement, target.value):
        return
    value = source.segment(statement.value)
    start, end = source.start(statement), source.end(statement)
    if syntax.is_number(statement.value):
        text = f"{tensor} = {tensor}.masked_fill({index}, {value})"
        yield text, [Edit(start, end, text)]
        value = f"{tensor}.new_tensor({value})"
    if isinstance(target.slice, (ast.Name, ast.Attribute, ast.Compare, ast.Call, ast.UnaryOp)):
        text = f"{tensor} = {tensor}.index_put(({index},), {value})"
        yield text, [Edit(start, end, text)]


def _counts(source: Source, index: ast.expr) -> bool:
    """An index that a loop counts: a number, no mask."""
    loop = source.loop_of(index)
    while loop is not None:
        if isinstance(loop, ast.For) and syntax.names_in(index) & syntax.stores(loop.target):
            return True
        loop = source.loop_of(loop)
    return False


def _assigned_data(source: Source, statement: ast.Assign, target: ast.Attribute) -> Found:
    """`x.data = value` as an ordinary assignment."""
    if isinstance(target.value, ast.Name):
        edit = Edit(source.end(target.value), source.end(target), "")
        yield f"{source.segment(target.value)} = …, without .data", [edit]


def _receiver(call: ast.Call) -> ast.expr | None:
    """The tensor that an in-place call writes."""
    out = syntax.out_of(call)
    if out is not None:
        return out
    if isinstance(call.func, ast.Attribute) and not syntax.is_module_function(call):
        return call.func.value
    return call.args[0] if call.args else None


def _call(source: Source, statement: ast.stmt, call: ast.Call, *, rebind: bool, unread: bool = False) -> Found:
    written = _receiver(call)
    if written is None:
        return
    variable = written if isinstance(written, (ast.Name, ast.Attribute, ast.Subscript)) else None
    if isinstance(variable, ast.Attribute) and variable.attr == "data":
        variable = variable.value if isinstance(variable.value, (ast.Name, ast.Attribute, ast.Subscript)) else None
    edits, title = _twin(source, call, written)
    if not edits:
        return
    if isinstance(statement, ast.Expr) and _is_whole(statement.value, call):
        # The result was thrown away: without a name the new value would be, too.
        if variable is None or not rebind:
            return
        if not unread and not syntax.is_read_again(source, statement, variable):
            return
        name = source.segment(variable)
        yield (
            f"{name} = {title}",
            [*edits, Edit(source.start(statement), source.start(statement), f"{name} = ")],
        )
        return
    also = variable if rebind and isinstance(statement, ast.Assign) else None
    if isinstance(also, (ast.Name, ast.Attribute)) and isinstance(statement, ast.Assign):
        bound = any(syntax.same(also, target) for target in statement.targets)
        if not bound and syntax.is_read_again(source, statement, also):
            # Who reads the written name later must find the new value there as well.
            name, at = source.segment(also), source.start(statement.value)
            yield f"{name} = {title}", [*edits, Edit(at, at, f"{name} = ")]
    yield title, edits


def _is_whole(value: ast.expr, call: ast.Call) -> bool:
    """The statement is this call, or a chain that goes on from it: `x.mul_(2).add_(1)`."""
    while value is not call and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return value is call


def returned_twin(spot: Spot) -> Found:
    """A function that ends with a write to its argument returns the new value instead, as a hook may."""
    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    if function is None or not isinstance(statement, ast.Expr) or function.body[-1] is not statement:
        return
    if any(isinstance(n, ast.Return) for n in ast.walk(function)):
        return
    for call in _calls(spot, statement):
        written = _receiver(call)
        edits, title = _twin(source, call, written) if written is not None else ([], "")
        if edits:
            at = source.start(statement)
            yield f"return {title}", [*edits, Edit(at, at, "return ")]


def _twin(source: Source, call: ast.Call, written: ast.expr) -> tuple[list[Edit], str]:
    """Edits that make the call leave its operand alone, and how the call then reads."""
    whole = source.segment(call)
    inplace = next((k for k in call.keywords if k.arg == "inplace"), None)
    if inplace is not None:
        edit = Edit(source.start(inplace.value), source.end(inplace.value), "False")
        return [edit], _short(whole.replace("inplace=True", "inplace=False"))
    out = next((k for k in call.keywords if k.arg == "out"), None)
    if out is not None:
        return _without_argument(source, call, out), _short(f"{source.segment(call.func)}(…)")
    func, name = call.func, syntax.called(call)
    end = source.end(func)
    arguments = source.text[end : source.end(call)]
    receiver = source.segment(written)
    if name in NO_TWIN:
        if syntax.is_module_function(call):
            return [], ""
        torch, only = syntax.torch_name(source), [a for a in call.args if syntax.is_number(a)]
        if torch and name == "zero_":
            return _whole(source, call, f"{torch}.zeros_like({receiver})")
        if torch and name == "fill_" and len(only) == len(call.args) == 1:
            return _whole(source, call, f"{torch}.full_like({receiver}, {source.segment(only[0])})")
        edit = Edit(source.end(written), source.end(written), ".clone()")
        return [edit], _short(f"{receiver}.clone().{name}{arguments}")
    edits = [Edit(end - 1, end, "")]
    shown = receiver
    if isinstance(written, ast.Attribute) and written.attr == "data" and not syntax.is_module_function(call):
        edits.append(Edit(source.end(written.value), source.end(written), ""))
        shown = source.segment(written.value)
    prefix = source.segment(func)[:-1] if syntax.is_module_function(call) else f"{shown}.{name[:-1]}"
    return edits, _short(f"{prefix}{arguments}")


def _whole(source: Source, call: ast.Call, text: str) -> tuple[list[Edit], str]:
    return [Edit(source.start(call), source.end(call), text)], _short(text)


def _without_argument(source: Source, call: ast.Call, keyword: ast.keyword) -> list[Edit]:
    before = [*call.args, *(k.value for k in call.keywords if source.end(k.value) < source.start(keyword))]
    if not before:
        return []
    return [Edit(max(source.end(node) for node in before), source.end(keyword), "")]

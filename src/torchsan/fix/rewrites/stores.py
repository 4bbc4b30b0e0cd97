"""What is kept must be a copy: where a value is stored, handed out, repeated or bound."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import syntax
from torchsan.fix.rewrites.stored import given_back, handed_out, is_of_keys, same_stores, stored_values
from torchsan.fix.source import Edit, Source

Found = Iterator[tuple[str, Iterable[Edit]]]
LIMIT = 4
ARRAYS = {"numpy", "asarray", "__array__"}
# Calls that may hand out the memory they are given, and the one that always copies.
SHARING = {"as_tensor": "tensor", "from_numpy": "tensor", "asarray": "array"}


def kept_copy(spot: Spot) -> Found:
    """A copy of what a statement stores; of each part that may be meant, the smallest edit first."""
    source, statement = spot.source, spot.source.statement(spot.span)
    if statement is None:
        return
    values = [part for value, _ in stored_values(source, statement, spot.span) for part in _parts(value)][: 2 * LIMIT]
    yield from _collected(source, statement, spot)
    for value in values:
        others = same_stores(source, statement, value)
        if others:
            shown = source.segment(value)
            everywhere = [syntax.cloned(source, one) for one in (value, *others)]
            yield f"keep copies: {shown}.clone() wherever {shown} is kept", everywhere
        yield from _copies(source, value)
        for made in given_back(source, value):
            # The list was built elsewhere, as one thing in many places.
            yield from _repeated(source, made) or ()
    if len(values) > 1:
        yield "keep copies of all", [edit for value in values for edit in [syntax.cloned(source, value)]]


def _collected(source: Source, statement: ast.stmt, spot: Spot) -> Found:
    """`list(batches)` as a list of copies, `[x for x in batches]` of copies of x."""
    for value in (source.expression(spot.span), getattr(statement, "value", None)):
        if isinstance(value, ast.Call) and syntax.called(value) in ("list", "tuple") and len(value.args) == 1:
            name = syntax.free_name("item", syntax.names_in(source.scope_of(statement)))
            inner = source.segment(value.args[0])
            parameters = inner.endswith("parameters()")
            each = "p.detach().clone() for p" if parameters else f"{name}.clone() for {name}"
            text = f"[{each} in {inner}]"
            yield text, [Edit(source.start(value), source.end(value), text)]


def _parts(value: ast.expr) -> list[ast.expr]:
    """Members of a literal, one by one; anything else as it is."""
    if isinstance(value, ast.Starred):
        return _parts(value.value)
    if isinstance(value, (ast.Tuple, ast.List)):
        return [part for item in value.elts for part in _parts(item)]
    if isinstance(value, ast.Dict):
        return [part for item in value.values for part in _parts(item)]
    if isinstance(value, ast.IfExp):
        return [*_parts(value.body), *_parts(value.orelse)]
    if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Compare, ast.UnaryOp, ast.Lambda)) or _is_number(value):
        return []
    return [value]


def _is_number(value: ast.expr) -> bool:
    """`loss.item()`, `float(loss)`: nothing that shares memory."""
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute):
        return value.func.attr in ("item", "tolist") and not value.args
    return isinstance(value.func, ast.Name) and value.func.id in ("float", "int", "bool", "len", "str")


def _copies(source: Source, value: ast.expr) -> Found:
    repeated = _repeated(source, value)
    if repeated is not None:
        yield from repeated
        return
    call = value if isinstance(value, ast.Call) else None
    name = syntax.called(call) if call is not None else ""
    if call is not None and is_of_keys(call):
        keys, item = call.args
        text = f"{{key: {source.segment(item)} for key in {source.segment(keys)}}}"
        if isinstance(item, ast.Call):
            yield text, [Edit(source.start(value), source.end(value), text)]
    if isinstance(value, ast.ListComp) and len(value.generators) == 1:
        yield f"keep copies: {source.segment(value.elt)}.detach().clone()", [_detached(source, value.elt)]
        yield f"keep copies: {source.segment(value.elt)}.clone()", [syntax.cloned(source, value.elt)]
    if isinstance(value, ast.DictComp):
        yield f"keep copies: {source.segment(value.value)}.clone()", [syntax.cloned(source, value.value)]
    if call is not None and name in SHARING and isinstance(call.func, ast.Attribute):
        end = source.end(call.func)
        text = SHARING[name]
        yield f"{text}(…), which copies", [Edit(end - len(name), end, text)]
    if call is not None and name in ARRAYS:
        end = source.end(value)
        yield f"keep a copy: {_short(source, value)}.copy()", [Edit(end, end, ".copy()")]
        return
    if call is not None and name == "state_dict":
        yield f"copy.deepcopy({_short(source, value)})", deep(source, value)
        return
    if call is not None and name[:1].isupper():
        # A constructor that keeps what it is given: `nn.Parameter(start)`.
        for argument in call.args[:LIMIT]:
            if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
                yield f"give it a copy: {source.segment(argument)}.clone()", [syntax.cloned(source, argument)]
    receiver = _moved_module(value)
    if receiver is not None:
        yield f"copy.deepcopy({source.segment(receiver)})", deep(source, receiver)
    yield f"keep a copy: {_short(source, value)}.clone()", [syntax.cloned(source, value)]
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        yield f"keep a copy: {_short(source, value)}.copy()", [Edit(source.end(value), source.end(value), ".copy()")]
    yield f"copy.deepcopy({_short(source, value)})", deep(source, value)


def _short(source: Source, node: ast.AST) -> str:
    text = " ".join(source.segment(node).split())
    return text if len(text) <= 40 else "…"


def _detached(source: Source, node: ast.expr) -> Edit:
    text = syntax.as_receiver(source.segment(node), node)
    return Edit(source.start(node), source.end(node), f"{text}.detach().clone()")


def _moved_module(value: ast.expr) -> ast.expr | None:
    """`model` in `model.to(device)`, `model.eval()`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.value if value.func.attr in ("to", "cuda", "cpu", "eval", "train", "float") else None
    return None


def deep(source: Source, node: ast.expr) -> list[Edit]:
    start, end = source.start(node), source.end(node)
    return [*syntax.with_import(source, "copy"), Edit(start, start, "copy.deepcopy("), Edit(end, end, ")")]


def _repeated(source: Source, value: ast.expr) -> Found | None:
    """`[x] * n`: one thing in n places."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return None
    many, times = (value.left, value.right) if isinstance(value.left, ast.List) else (value.right, value.left)
    if not isinstance(many, ast.List) or len(many.elts) != 1:
        return None
    return _as_comprehension(source, value, many.elts[0], times)


def _as_comprehension(source: Source, value: ast.expr, item: ast.expr, times: ast.expr) -> Found:
    shown, count = source.segment(item), source.segment(times)
    start, end = source.start(value), source.end(value)
    if isinstance(item, ast.Call):
        text = f"[{shown} for _ in range({count})]"
        yield text, [Edit(start, end, text)]
    text = f"[{syntax.as_receiver(shown, item)}.clone() for _ in range({count})]"
    yield text, [Edit(start, end, text)]
    text = f"[copy.deepcopy({shown}) for _ in range({count})]"
    yield text, [*syntax.with_import(source, "copy"), Edit(start, end, text)]


def bound_copy(spot: Spot) -> Found:
    """A copy where the written name is bound: `sample = self.data[i].clone()`."""
    from torchsan.fix.rewrites.writes import written_in

    source, statement = spot.source, spot.source.statement(spot.span)
    function = source.function_of(statement) if statement is not None else None
    written = written_in(spot, statement) if statement is not None else None
    root = syntax.root_name(written) if written is not None else ""
    if statement is None or root in ("", "self", "cls"):
        return
    for node in ast.walk(function or source.tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node is not statement and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == root for t in targets):
                yield from _bound(source, node.value)
    if function is not None and root in {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}:
        body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        # Before the write, or where it is not the only one, before all of them.
        for place in dict.fromkeys((statement, body[0])):
            edit = syntax.insert_before(source, place, f"{root} = {root}.clone()")
            where = "" if place is statement else " from the start"
            if edit is not None:
                yield f"write to a copy{where}: {root} = {root}.clone()", [edit]


def _bound(source: Source, value: ast.expr) -> Found:
    if isinstance(value, ast.Call) and syntax.called(value) in ARRAYS:
        end = source.end(value)
        yield f"take a copy: {_short(source, value)}.copy()", [Edit(end, end, ".copy()")]
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        yield f"take a copy: {_short(source, value)}.clone()", [syntax.cloned(source, value)]


def single_views(spot: Spot) -> Found:
    """Rows one by one in place of all at once: a view that was made alone may be written."""
    from torchsan.fix.rewrites.writes import written_in

    source, statement = spot.source, spot.source.statement(spot.span)
    written = written_in(spot, statement) if statement is not None else None
    root = syntax.root_name(written) if written is not None else ""
    scope = source.scope_of(statement) if statement is not None else None
    for node in ast.walk(scope) if scope is not None and root else ():
        if isinstance(node, (ast.For, ast.comprehension)) and root in syntax.stores(node.target):
            yield from _one_by_one(source, node.iter)
        elif isinstance(node, ast.Assign) and root in {n for t in node.targets for n in syntax.stores(t)}:
            yield from _one_by_one(source, node.value)


def _one_by_one(source: Source, many: ast.expr) -> Found:
    if isinstance(many, ast.Call) and syntax.called(many) in ("enumerate", "zip", "reversed", "list", "tuple"):
        for argument in many.args:
            yield from _one_by_one(source, argument)
        return
    tensor: ast.expr | None = many if isinstance(many, (ast.Name, ast.Attribute)) else None
    if isinstance(many, ast.Call) and syntax.called(many) == "unbind":
        given = [*many.args, *(k.value for k in many.keywords)]
        own = many.args[0] if syntax.is_module_function(many) and many.args else None
        rest = [g for g in given if g is not own]
        if all(isinstance(g, ast.Constant) and g.value == 0 for g in rest):
            tensor = own or (many.func.value if isinstance(many.func, ast.Attribute) else None)
    if isinstance(tensor, (ast.Name, ast.Attribute)):
        name = source.segment(tensor)
        text = f"({name}[i] for i in range(len({name})))"
        yield f"take the rows one by one: {name}[i]", [Edit(source.start(many), source.end(many), text)]


def handed_out_copy(spot: Spot) -> Found:
    """Copies where the memory is handed out: where it is stored a copy may come too late."""
    from torchsan.fix.rewrites.writes import written_in

    source, statement = spot.source, spot.source.statement(spot.span)
    written = written_in(spot, statement) if statement is not None else None
    values = handed_out(source, statement, written) if statement is not None and written is not None else []
    for way in ("clone", "copy") if values else ():
        shown = " and ".join(dict.fromkeys(f"{_short(source, value)}.{way}()" for value in values))
        yield f"hand out {shown}", [Edit(source.end(value), source.end(value), f".{way}()") for value in values]


def clone_operand(spot: Spot) -> Found:
    """An op that writes what it reads is given a copy to read."""
    source, statement = spot.source, spot.source.statement(spot.span)
    for call in ast.walk(statement) if statement is not None else ():
        if isinstance(call, ast.Call) and syntax.is_inplace_call(call):
            given = call.args[1:] if syntax.is_module_function(call) and syntax.out_of(call) is None else call.args
            for argument in given:
                if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript)):
                    yield f"read a copy: {source.segment(argument)}.clone()", [syntax.cloned(source, argument)]

"""Small questions about syntax that several rewrites ask."""

from __future__ import annotations

import ast

from torchsan.fix.source import Edit, Source

# Methods that end in an underscore and write no element.
NOT_WRITES = {"requires_grad_", "detach_", "share_memory_", "retain_grad_", "rename_", "register_"}
# Methods whose result shares memory with the tensor.
VIEWS = {
    *("view", "reshape", "narrow", "select", "transpose", "permute", "t", "squeeze", "unsqueeze", "flatten"),
    *(
        "diagonal",
        "view_as",
        "expand",
        "expand_as",
        "unfold",
        "swapaxes",
        "movedim",
        "detach",
        "T",
        "mT",
        "data",
        "real",
        "imag",
    ),
}
Place = ast.Name | ast.Attribute | ast.Subscript


def is_inplace_call(node: ast.AST) -> bool:
    """`x.mul_(…)`, `torch.relu_(x)`, `F.relu(x, inplace=True)`, `torch.add(a, b, out=x)`."""
    return isinstance(node, ast.Call) and (_underscored(node) or _inplace_argument(node) or out_of(node) is not None)


def _underscored(call: ast.Call) -> bool:
    name = called(call)
    return name.endswith("_") and not name.endswith("__") and len(name) > 1 and name not in NOT_WRITES


def _inplace_argument(call: ast.Call) -> bool:
    return any(k.arg == "inplace" and is_true(k.value) for k in call.keywords)


def is_true(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def out_of(call: ast.Call) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == "out"), None)


def called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def is_module_function(call: ast.Call) -> bool:
    """`torch.relu_(x)`, `F.relu(x)`: the written tensor is an argument, not what is before the dot."""
    func = call.func
    if isinstance(func, ast.Name):
        return True
    return isinstance(func, ast.Attribute) and root_name(func.value) in ("torch", "F", "nn", "functional")


def root_name(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def dotted_root(node: ast.AST) -> str:
    """`opt` of `opt.step`, `self.net` of `self.net.weight`: the object that is held by a name or by self."""
    chain = []
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Attribute):
            chain.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name):
        return ""
    return f"self.{chain[-1]}" if node.id == "self" and chain else node.id


def is_library(name: str) -> bool:
    return name in ("torch", "F", "nn", "functional", "math", "np", "numpy", "print", "len", "range")


def variable_of(node: ast.expr) -> ast.Name | ast.Attribute | None:
    """The name or attribute whose memory an expression is a view of: `x` for `x[0].view(-1)`, `x.data`."""
    while True:
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in VIEWS):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_receiver(node):
            node = node.func.value
        else:
            return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def _is_receiver(call: ast.Call) -> bool:
    """A view of what is before the dot, or that itself: `x.mul_(2)` is x."""
    return called(call) in VIEWS or (_underscored(call) and not is_module_function(call))


def names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def same(a: ast.AST, b: ast.AST) -> bool:
    return ast.unparse(a) == ast.unparse(b)


def needs_parentheses(node: ast.expr, operator: ast.operator) -> bool:
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Tuple)):
        return isinstance(node, ast.Tuple)
    tight = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.MatMult, ast.Pow))
    return not (tight and isinstance(operator, (ast.Add, ast.Sub)))


def as_receiver(text: str, node: ast.expr) -> str:
    """The text of an expression, fit to have `.method()` put after it."""
    simple = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    return text if simple else f"({text})"


def cloned(source: Source, node: ast.expr) -> Edit:
    return Edit(source.start(node), source.end(node), as_receiver(source.segment(node), node) + ".clone()")


def insert_before(source: Source, statement: ast.stmt, *lines: str) -> Edit | None:
    if not source.owns_its_lines(statement):
        return None
    at = source.line_start(statement.lineno)
    indent = source.indent(statement)
    return Edit(at, at, "".join(f"{indent}{line}{source.newline}" for line in lines))


def insert_after(source: Source, statement: ast.stmt, *lines: str) -> Edit | None:
    if not source.owns_its_lines(statement):
        return None
    last = statement.end_lineno or statement.lineno
    at = source.line_start(last + 1)
    ended = source.text[:at].endswith(("\n", "\r"))
    indent = source.indent(statement)
    text = "".join(f"{indent}{line}{source.newline}" for line in lines)
    return Edit(at, at, text if ended else source.newline + text.rstrip("\r\n"))


def stores(node: ast.AST) -> set[str]:
    """Names that a statement binds."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def is_read_again(source: Source, statement: ast.stmt, target: ast.expr) -> bool:
    """Is the value of a variable used after this statement, here or in the next turn of a loop around it?"""
    if not isinstance(target, ast.Name):
        return True
    scope = source.scope_of(statement)
    reads = [
        n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
    ]
    end = source.end(statement)
    if any(source.start(read) >= end for read in reads):
        return True
    loop = source.loop_of(statement)
    if loop is None:
        return False
    rebound = isinstance(loop, ast.For) and target.id in stores(loop.target)
    inside = [r for r in reads if source.start(loop) <= source.start(r) < source.start(statement)]
    return bool(inside) and not rebound


def torch_name(source: Source) -> str | None:
    """How this file spells `torch`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                    return alias.asname or "torch"
    return None


def with_import(source: Source, module: str) -> list[Edit]:
    """The edit that imports a module of the standard library (or torch) when the file does not yet."""
    for node in source.tree.body:
        if isinstance(node, ast.Import) and any(a.name == module and a.asname is None for a in node.names):
            return []
    imports = [n for n in source.tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    imports = [n for n in imports if getattr(n, "module", "") != "__future__"]
    if imports and (edit := insert_before(source, imports[0], f"import {module}")):
        return [edit]
    first = source.tree.body[0]
    return [edit] if (edit := insert_after(source, first, f"import {module}")) else []


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it that nobody uses."""
    while name in taken:
        name += "_"
    return name


def is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    constant = isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
    return constant or (isinstance(node, ast.Call) and called(node) == "float")

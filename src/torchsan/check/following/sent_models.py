"""A model that is sent to other processes, and that each of them takes for its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.check.facts import Fact
from torchsan.check.following.blocks import Body, blocks_of, functions_of, keyword_of, names_bound, root_of
from torchsan.check.reading.program import Program
from torchsan.model import events, parallel_events

# They make a copy where there is something to move or to convert.
_MOVES = ("to", "cuda", "half", "bfloat16", "float", "double", "type")
_WRAPPERS = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")


def sent_models(program: Program) -> Iterator[Fact]:
    functions = {n.name: n for n in program.tree.body if isinstance(n, ast.FunctionDef)}
    for _, _, body in functions_of(program.tree):
        for statement in (s for block in blocks_of(body) for s in block):
            call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
            if not isinstance(call, ast.Call) or program.dotted(call.func) != "torch.multiprocessing.spawn":
                continue
            args = keyword_of(call, "args")
            target = functions.get(call.args[0].id) if call.args and isinstance(call.args[0], ast.Name) else None
            if target is None or not isinstance(args, ast.Tuple):
                continue
            for position, given in enumerate(args.elts, 1):
                if isinstance(given, ast.Name) and _is_model(given.id, body, program):
                    yield from _wrapped_there(program, call, given.id, target, position)


def _is_model(name: str, body: Body, program: Program) -> bool:
    made = [
        s.value
        for block in blocks_of(body)
        for s in block
        if isinstance(s, ast.Assign) and name in names_bound(s) and isinstance(s.value, ast.Call)
    ]
    classes = {n.name for n in program.tree.body if isinstance(n, ast.ClassDef) and _is_module(n, program)}
    return any(
        program.dotted(call.func) in classes or program.dotted(call.func).startswith("torch.nn.") for call in made
    )


def _is_module(node: ast.ClassDef, program: Program) -> bool:
    return any(program.dotted(base).startswith("torch.nn.") for base in node.bases)


def _wrapped_there(
    program: Program, call: ast.Call, name: str, target: ast.FunctionDef, position: int
) -> Iterator[Fact]:
    """The DDP that each rank makes of the model as it came: neither copied nor moved."""
    positional = [*target.args.posonlyargs, *target.args.args]
    if position >= len(positional):
        return
    own = positional[position].arg
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and node.id == own and isinstance(node.ctx, ast.Store):
            return
        if isinstance(node, ast.Attribute) and node.attr in _MOVES and root_of(node) == own:
            return
    for made in (n for n in ast.walk(target) if isinstance(n, ast.Call)):
        given = made.args[0] if program.dotted(made.func) in _WRAPPERS and made.args else None
        if isinstance(given, ast.Name) and given.id == own:
            count = keyword_of(call, "nprocs")
            detail = str(count.value) if isinstance(count, ast.Constant) else "All"
            sent, wrapped = events.Line(program.place(call)), events.Line(program.place(made))
            event = parallel_events.SharedMemory("ddp", events.Memory(name), sent, wrapped, detail)
            yield Fact(event, program.place(call))
            return

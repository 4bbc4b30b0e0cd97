"""A script that keeps what calls at its outermost level return: `main()` says there what it computed."""

from __future__ import annotations

import ast
import zlib
from collections import Counter
from types import CodeType

# Names under which results are kept; no program uses them.
RESULT = "_torchsan_result_"


def compiled(content: bytes, path: str) -> CodeType:
    tree = ast.parse(content, path)
    _keep(tree.body, Counter())
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _keep(body: list[ast.stmt], seen: Counter[str]) -> None:
    for index, statement in enumerate(body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            # By what is called: a statement that an edit puts in must not take the name of another one's result.
            called = f"{zlib.crc32(ast.unparse(statement.value.func).encode(errors='replace')):08x}"
            name = ast.copy_location(ast.Name(f"{RESULT}{called}_{seen[called]}", ast.Store()), statement)
            body[index] = ast.copy_location(ast.Assign([name], statement.value), statement)
            seen[called] += 1
        elif isinstance(statement, ast.If):
            _keep(statement.body, seen)

"""Which function a line of a file stands in."""

from __future__ import annotations

import ast

from torchsan.check.reading.program import FunctionInfo, Program


def function_at(program: Program, line: int) -> FunctionInfo | None:
    """The function, or the method of a class, at the top of the file around a line."""
    owner, body = None, program.tree.body
    for node in body:
        if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            owner, body = program.class_info(node), node.body
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            return program.function(node, owner)
    return None

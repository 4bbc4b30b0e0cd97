"""Notebooks: `%load_ext torchsan`, then `%%torchsan` on top of a cell runs it under the sanitizer.

The report is shown below the cell and kept in `torchsan_report`.
"""

from __future__ import annotations

import ast
from typing import Any

from torchsan.model import Report

NAME = "torchsan_report"


def _run(shell: Any, cell: str) -> None:
    """Run a cell as IPython does: magics allowed, a value on the last line is shown."""
    # The blank line stands for the magic's own, so that lines are counted as the notebook counts them.
    source = "\n" + shell.transform_cell(cell)
    name = shell.compile.cache(source)
    body = shell.compile.ast_parse(source, filename=name).body
    split = len(body) - 1 if body and isinstance(body[-1], ast.Expr) else len(body)
    exec(shell.compile(ast.Module(body[:split], []), name, "exec"), shell.user_ns)
    exec(shell.compile(ast.Interactive(body[split:]), name, "single"), shell.user_ns)


def _torchsan(line: str, cell: str) -> None:
    """Run the cell under the sanitizer and show what it found."""
    from IPython import get_ipython
    from IPython.core.error import UsageError
    from IPython.display import display

    import torchsan

    if line.strip():
        raise UsageError("%%torchsan takes no arguments")
    shell = get_ipython()
    report: Report | None = None
    try:
        with torchsan.watch() as report:
            _run(shell, cell)
    finally:
        if report is not None:
            shell.user_ns[NAME] = report
            display(report)


def load_ipython_extension(shell: Any) -> None:
    shell.register_magic_function(_torchsan, magic_kind="cell", magic_name="torchsan")


def unload_ipython_extension(shell: Any) -> None:
    shell.magics_manager.magics["cell"].pop("torchsan", None)

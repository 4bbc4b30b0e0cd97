"""A bar on the terminal for work that has a time budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class _BudgetBar(Progress):
    """Fills as time goes by, whatever the work does."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            task.completed = min(task.elapsed or 0.0, task.total or 0.0)
        return super().get_renderables()


@contextmanager
def budget_bar(stream: TextIO, seconds: float) -> Iterator[Callable[[str], None]]:
    """Yields a function that says what is being done now. The bar goes when the work is done."""
    columns = (TextColumn("torchsan verify: {task.description}"), BarColumn(), TimeElapsedColumn())
    budget = TextColumn(f"of {seconds:.0f} s")
    # The stream itself: while the model runs, sys.stderr leads elsewhere.
    console = Console(file=stream)
    bar = _BudgetBar(*columns, budget, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    with bar:
        task = bar.add_task("eager", total=seconds)
        yield lambda text: bar.update(task, description=text)

"""Makes every Python that the program starts part of the run: a folder on PYTHONPATH whose sitecustomize follows it."""

from __future__ import annotations

import os

from torchsan.processes.options import RunOptions

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "follow_path")


def follow_children(options: RunOptions) -> None:
    options.into(os.environ)
    known = os.environ.get("PYTHONPATH", "")
    if FOLDER not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (FOLDER, known) if part)

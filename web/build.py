"""Puts the page together: `python web/build.py` writes src/torchsan/report/page.html.

The bundle is committed, so that nobody who installs torchsan needs this; a test sees that it is up to date.
"""

from __future__ import annotations

from pathlib import Path

WEB = Path(__file__).parent
TARGET = WEB.parent / "src" / "torchsan" / "report" / "page.html"
SCRIPTS = ["base", "source", "findings", "lanes", "timeline", "captures", "memory", "main"]


def bundle() -> str:
    """The page with style and script inside; the marks of the data are left for the renderer."""
    script = "\n".join((WEB / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    page = (WEB / "page.html").read_text(encoding="utf-8")
    page = page.replace("/*torchsan:style*/", "\n" + (WEB / "style.css").read_text(encoding="utf-8"))
    return page.replace("/*torchsan:script*/", f'"use strict";\n(() => {{\n{script}}})();\n')


if __name__ == "__main__":
    TARGET.write_text(bundle(), encoding="utf-8")

"""What mkdocs does not find as files: the rules' pages, the error index and the gallery.

They are made from the rules and from programs that are run while the site is built, so that the site cannot say
what the tool does not do. Anything amiss is a warning, and warnings stop `make docs`.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "src"))

from torchsan.rules import Rule, all_rules  # noqa: E402

log = logging.getLogger("mkdocs.hooks.torchsan")

FAMILIES = {
    "1": ("Autograd", "an error, now or at backward"),
    "2": ("Silent", "wrong numbers and no error"),
    "3": ("Capture", "the trace or export is not the model"),
    "4": ("Parallel", "several processes"),
    "5": ("Memory", "advice, off by default"),
}
HEADINGS = re.compile(r"^(What it is|What goes wrong|How to fix|When to ignore)\. ", re.M)


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def rule_page(rule: Rule) -> str:
    title, _, body = rule.page.partition("\n")
    sections = HEADINGS.sub(r"## \1\n\n", body.strip())
    default = "" if rule.default else " Off by default."
    return (
        f"# {rule.code} {rule.name}\n\n{title}\n\nLevel: **{rule.level}**.{default}\n\n{sections}\n\n"
        f"## Example\n\nBad; the marked line is the one that is reported:\n\n{_code(rule.bad)}\n"
        f"Good:\n\n{_code(rule.good)}"
    )


def rules_index(rules: dict[str, Rule]) -> str:
    parts = ["# Rules\n\n`torchsan explain CODE` shows the same pages in the terminal.\n"]
    for family, (name, about) in FAMILIES.items():
        rows = [rule for rule in rules.values() if rule.family == family]
        if rows:
            parts.append(f"## {name}: {about}\n\n| code | name | |\n|---|---|---|")
            parts += [f"| [{r.code}]({r.code.lower()}.md) | {r.name} | {r.title} |" for r in rows]
            parts.append("")
    return "\n".join(parts)


def errors_page(rules: dict[str, Rule]) -> str:
    entries = tomllib.loads((DOCS / "_build" / "errors.toml").read_text(encoding="utf-8"))["error"]
    parts = ["# From an error to its page\n\nSearch for the words that torch used.\n"]
    for entry in entries:
        for code in entry["codes"]:
            if code not in rules:
                log.warning("errors.toml names %s, which is no rule", code)
        links = ", ".join(f"[{c} {rules[c].name}](rules/{c.lower()}.md)" for c in entry["codes"] if c in rules)
        parts.append(f"## {entry['text']}\n\n{entry['means'].strip()}\n\nSee {links}.\n")
    return "\n".join(parts)


def _torchsan(program: Path, verb: str, factory: str) -> str:
    """What a verb says about a program; the program's own output is dropped."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "NO_COLOR": "1"}
    report = program.with_suffix(".report")
    command = [sys.executable, "-m", "torchsan", verb, "--output", str(report), program.name + factory]
    subprocess.run(command, cwd=program.parent, env=environment, capture_output=True, timeout=120)
    try:
        text = report.read_text(encoding="utf-8") if report.exists() else ""
        # Where torch is installed on the machine that builds the site is nobody's business.
        return re.sub(r"\S*/site-packages/", "…/site-packages/", text)
    finally:
        report.unlink(missing_ok=True)


def _case(folder: Path) -> str:
    about = tomllib.loads((folder / "about.toml").read_text(encoding="utf-8"))
    before, after = folder / "before.py", folder / "after.py"
    how = (about.get("verb", "run"), about.get("factory", ""))
    told = _torchsan(before, *how)
    if about["code"] not in told:
        log.warning("gallery: %s is not reported as %s", before, about["code"])
    if (silent := _torchsan(after, *how)) and "[TS" in silent:
        log.warning("gallery: %s is reported, and should not be: %s", after, silent)
    program = before.read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (before, after)]
    diff = "\n".join(difflib.unified_diff(*texts, "before.py", "after.py", lineterm="", n=1))
    source = f" ([where people met it]({about['source']}))" if "source" in about else ""
    return (
        f"## {about['title']}\n\n{textwrap.dedent(about['text']).strip()}{source}\n\n{_code(program)}\n"
        f"What torchsan says:\n\n{_code(told, 'text')}\nMended:\n\n{_code(diff, 'diff')}"
    )


def gallery_page() -> str:
    cases = [_case(folder) for folder in sorted((DOCS / "gallery").iterdir()) if folder.is_dir()]
    head = (
        "# Gallery\n\nReal mistakes, each as a small program, with what torchsan says about it. The programs were"
        " run when this page was built.\n\n"
    )
    return head + "\n".join(cases)


def on_config(config: Any) -> Any:
    """Each rule has its place in the navigation."""
    pages = ["rules/index.md", *(f"rules/{code.lower()}.md" for code in all_rules())]
    config.nav = [{"Rules": pages} if "Rules" in entry else entry for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    rules = all_rules()
    pages = {"rules/index.md": rules_index(rules), "errors.md": errors_page(rules), "gallery.md": gallery_page()}
    pages |= {f"rules/{code.lower()}.md": rule_page(rule) for code, rule in rules.items()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files

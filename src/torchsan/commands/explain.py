"""`torchsan explain CODE`: the rule's page."""

from __future__ import annotations

import argparse
import difflib

from torchsan.errors import UsageError
from torchsan.rules import Rule, all_rules, find_rule


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", metavar="CODE", help="a code (TS101) or a name; none lists all rules")


def _page(rule: Rule) -> str:
    title, _, body = rule.page.partition("\n")
    head = f"{rule.code} {rule.name} ({rule.level})\n{title}\n"
    examples = f"Bad:\n\n{_indent(rule.bad)}\n\nGood:\n\n{_indent(rule.good)}\n"
    return f"{head}{body}\n\n{examples}"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.rstrip().splitlines())


def _listing() -> str:
    return "\n".join(f"{r.code}  {r.name:<36} {r.title}" for r in all_rules().values())


def execute(args: argparse.Namespace) -> int:
    if not args.what:
        print(_listing())
        return 0
    rule = find_rule(args.what)
    if rule is None:
        names = [r.name for r in all_rules().values()] + list(all_rules())
        near = difflib.get_close_matches(args.what, names, n=1)
        raise UsageError(f"there is no rule {args.what!r}" + (f"; did you mean {near[0]}?" if near else ""))
    print(_page(rule))
    return 0

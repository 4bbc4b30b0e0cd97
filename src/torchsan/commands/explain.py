"""`torchsan explain CODE|NAME|OP`: the page of a rule, or what a torch op does."""

from __future__ import annotations

import argparse
import difflib

from torchsan.errors import UsageError
from torchsan.rules import Rule, all_rules, find_rule


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="CODE|NAME|OP",
        help="a code (TS101), a rule's name, or a torch op (exp, F.softmax, nn.ReLU); none lists all rules",
    )


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
    print(_page(rule) if rule is not None else _op_page(args.what))
    return 0


def _op_page(name: str) -> str:
    from torchsan import effects

    row = effects.lookup(name)
    if row is None:
        known = [r.name for r in all_rules().values()] + list(all_rules()) + effects.names()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no rule and no torch op {name!r}{hint}")
    facts = "\n".join(f"  - {fact}" for fact in row.describe().splitlines())
    return f"{row.name}, as torch {effects.table_version()} does it:\n{facts}"

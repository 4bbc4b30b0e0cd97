"""Count findings on real packages: `python benchmarks/ecosystem.py FOLDER [--sample N]`.

pip download --no-deps transformers timm diffusers     # then unpack the wheels into FOLDER
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from torchsan.check.choosing.files import find_files
from torchsan.check.runner import check_files, default_jobs
from torchsan.rules import all_rules


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample", type=int, default=40, help="how many default findings to list, at random")
    args = parser.parse_args()
    files = find_files([str(args.folder)])
    results = check_files(files, jobs=default_jobs(), cache_folder=None, possible=True)
    findings = [f for r in results for f in r.findings]
    rules = all_rules()
    shown = [f for f in findings if f.certainty != "possible" and rules[f.code].default]
    default, possible = Counter(f.code for f in shown), Counter(f.code for f in findings if f.certainty == "possible")
    print(f"{len(files)} files, {sum(bool(r.error) for r in results)} of them unreadable")
    print(f"{'rule':<44}{'default':>8}{'possible':>10}")
    for code in sorted({*default, *possible}):
        print(f"{code} {rules[code].name:<38}{default[code]:>8}{possible[code]:>10}")
    print(f"{'in all':<44}{default.total():>8}{possible.total():>10}\n")
    random.seed(0)
    for finding in sorted(random.sample(shown, min(args.sample, len(shown))), key=lambda f: f.primary.path):
        at = finding.primary
        print(f"{Path(at.path).relative_to(args.folder)}:{at.line}: {finding.code} {finding.message}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

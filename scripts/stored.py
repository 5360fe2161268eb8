#!/usr/bin/env python3
"""Stores the rows of a chapter of benchmarks: stored.py CHAPTER JSON.

Writes docs/CHAPTER.txt, with the date and the commit of the working tree.
"""

import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    chapter, path = sys.argv[1:]
    rows = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["rows"]
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(describe, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    lines = [f"Last result of `make bench-{chapter}`.", ""]
    lines += [f"date    {datetime.date.today()}", f"commit  {commit}", ""]
    for row in rows:
        value = f"{row['value']:g} {row['unit']}"
        verdict = "holds" if row["holds"] else "falls short"
        lines.append(f"{row['name']:60} {value:>16}  {row['target']:>10}  {verdict:11}  {row['command']}")
    (ROOT / f"docs/{chapter}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the generated part of docs/memory-model.md: published measurements and predictions.

Takes some minutes; figures are simulated, and the same on every host.
"""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/memory-model.md"
COMMAND = ["cargo", "run", "--release", "--quiet", "--package", "tierscope-sim", "--example", "validation"]
BEGIN, END = (f"<!-- {what} of what `make figures` writes -->\n" for what in ("begin", "end"))


def main():
    tables = subprocess.run(COMMAND, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    text = PAGE.read_text(encoding="utf-8")
    made = f"{BEGIN}Made by `{' '.join(COMMAND)}`.\n\n{tables}{END}"
    text, count = re.subn(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{PAGE}: the marks of the generated part are missing")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

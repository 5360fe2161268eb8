#!/usr/bin/env python3
"""Writes the generated parts of docs/memory-model.md: published measurements and predictions, and
how far the latter depend on uncertain numbers.

Takes half an hour; figures are simulated, and the same on every host.
"""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/memory-model.md"
COMMAND = ["cargo", "run", "--release", "--quiet", "--package", "tierscope-sim", "--example", "validation"]
# By name in the marks: what is added to the command.
PARTS = {"predictions": [], "sensitivity": ["--", "--sensitivity"]}


def written(text, name, options):
    """The page with one generated part made anew."""
    command = COMMAND + options
    tables = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    begin, end = (f"<!-- {what} of the {name} that `make figures` writes -->\n" for what in ("begin", "end"))
    made = f"{begin}Made by `{' '.join(command)}`.\n\n{tables}{end}"
    text, count = re.subn(re.escape(begin) + ".*" + re.escape(end), lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{PAGE}: the marks of the {name} are missing")
    return text


def main():
    for name, options in PARTS.items():
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), name, options), encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws comments of the .rs files by a seed: scripts/comment_sample.py SEED COUNT

A comment is a run of lines of one kind (//, ///, //!) or a block comment. Prints one line each:
number, file and line, text. crates/conformance/tests/prose_sample.md keeps a judged sample.
"""

import os
import random
import re
import sys

LITERAL = re.compile(
    r"""b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|'(?:\\[^']*|[^'\\])'"""
    r"""|(?P<comment>//[^\n]*|/\*.*?\*/)""",
    re.DOTALL,
)


def comments(text):
    """The comments of a file: first line, kind, text."""
    found = []
    for match in LITERAL.finditer(text):
        comment = match.group("comment")
        if comment is None:
            continue
        line = text.count("\n", 0, match.start()) + 1
        kind = re.match(r"//[/!]?|/\*", comment).group(0)
        words = " ".join(part.strip(" /!*") for part in comment.splitlines())
        if found and found[-1][1] == kind != "/*" and found[-1][3] == line - 1:
            found[-1][2] += " " + words
            found[-1][3] = line
        else:
            found.append([line, kind, words, line])
    return found


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    everything = []
    for folder in ("crates", "lab", "fuzz"):
        for place, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(".rs"):
                    path = os.path.join(place, name)
                    with open(path, encoding="utf-8") as file:
                        lines = comments(file.read())
                    short = os.path.relpath(path, root)
                    everything += [(f"{short}:{c[0]}", " ".join(c[2].split())) for c in lines]
    for number, (place, text) in enumerate(random.Random(seed).sample(everything, count), 1):
        print(f"{number}. {place}: {text}")


if __name__ == "__main__":
    main()

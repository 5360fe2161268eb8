#!/usr/bin/env python3
"""Prints rows of target/bench/accuracy.json on ordinary targets as lines of a table.

Usage: scripts/real_targets.py JSON COMMIT [CASE...]
With the commit of the programs that were measured; without cases: all targets and programs.
"""

import json
import sys

# Figures of every case have columns of their own.
HOT, TRUE, CPU = "hot, reported", "hot, true", "profiler CPU"
# Judged over all cases by rows of their own.
EVERYWHERE = ("windows with no more", "most resident bytes")
KINDS = ("shared ", "target ", "program ")


def number(row):
    return f"{row['value']:.6g} {row['unit']}"


def line(case, rows, commit):
    figures = {row["name"].split(": ", 1)[1]: row for row in rows}
    hot, true = (f"{figures[name]['value']:.1f}" for name in (HOT, TRUE))
    cpu = figures.get(CPU)
    cpu = "" if cpu is None else f"{cpu['value']:.1f} % ({cpu['target']})"
    others = {name: row for name, row in figures.items() if not name.startswith(EVERYWHERE)}
    barred = [name for name, row in others.items() if row["target"] and name != CPU]
    text = "; ".join(f"{name} {number(figures[name])} ({figures[name]['target']})" for name in barred)
    short = "; ".join(name for name, row in figures.items() if not row["holds"])
    return f"| {case} | {hot} | {true} | {text} | {cpu} | {short or 'nothing'} | {commit} |"


def main():
    path, commit, *cases = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    found = {}
    for row in rows:
        case = row["name"].split(": ", 1)[0]
        if case.startswith(KINDS) and (not cases or case in cases):
            found.setdefault(case, []).append(row)
    for case in sorted(found):
        print(line(case, found[case], commit))


if __name__ == "__main__":
    main()

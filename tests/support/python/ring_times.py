#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how long each ring of one `meson test` run took, as the table of CONTRIBUTING.md, and its longest tests.

  ring_times.py MESON_LOGS     the folder of testlog.json
"""
import json
import sys
from pathlib import Path

LONGEST = 10


def tests_of(text):
    """[(ring, test, begin, seconds)] of testlog.json, which has one object a line."""
    found = []
    for line in filter(None, text.splitlines()):
        entry = json.loads(line)
        suites, _, name = entry["name"].rpartition(" / ")  # "inductorfs:unit / base"
        found.append((suites.rpartition(":")[2] or "-", name, entry["starttime"], entry["duration"]))
    return found


def table(tests):
    lines = ["| ring | tests | minutes from its first to its last | minutes, one after another | longest |", "|---|---|---|---|---|"]
    rings = {}
    for ring, *test in tests:
        rings.setdefault(ring, []).append(test)

    def row(name, some):
        span = max(begin + seconds for _, begin, seconds in some) - min(begin for _, begin, _ in some)
        longest, _, most = max(some, key=lambda test: test[2])
        total = sum(seconds for _, _, seconds in some)
        return f"| {name} | {len(some)} | {span / 60:.1f} | {total / 60:.1f} | {longest}, {most:.0f} s |"

    lines += [row(f"`{ring}`", some) for ring, some in sorted(rings.items(), key=lambda item: min(test[1] for test in item[1]))]
    lines.append(row("all", [test for _, *test in tests]))
    return lines


def main():
    tests = tests_of((Path(sys.argv[1]) / "testlog.json").read_text())
    print(*table(tests), sep="\n")
    longest = sorted(tests, key=lambda test: -test[3])[:LONGEST]
    print("longest:", ", ".join(f"{name} {seconds:.0f} s" for _, name, _, seconds in longest))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the fail points of the code against tests/crash/manifest.txt: each is in both, under one name in one place, and the
manifest says what has been done before it. Exit code 1 and one line for each offence.   check_fail_points.py [ROOT]"""
import re
import sys
from pathlib import Path

CALL = re.compile(r"\bfail_point(_error)?\(\s*([^)]*?)\s*\)")
NAME = re.compile(r'"([a-z]+\.[a-z_]+)"')
OWN = {"src/base/fail_point.cc", "include/inductorfs/base/fail_point.h"}


def read_manifest(path):
    """({kill point: what}, {error point})"""
    kills, errors = {}, set()
    for line in path.read_text().splitlines():
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "error":
            errors.add(words[1].strip())
        else:
            kills[words[0]] = words[1].strip() if len(words) > 1 else ""
    return kills, errors


def points_of(root):
    """(kind, name or None, place) of each call in the code."""
    for folder in ("include", "src"):
        for path in sorted((root / folder).rglob("*")):
            where = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc") or where in OWN:
                continue
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                for error, argument in CALL.findall(line.split("//", 1)[0]):
                    name = NAME.fullmatch(argument)
                    yield "error" if error else "kill", name and name[1], f"{where}:{number}"


def check(root):
    kills, errors = read_manifest(root / "tests/crash/manifest.txt")
    known, seen = {"kill": set(kills), "error": errors}, {}
    for kind, name, place in points_of(root):
        if name is None:
            yield f"{place}: the name of a fail point is a text of the form \"part.step\""
            continue
        if name not in known[kind]:
            yield f"{place}: {name} is not in tests/crash/manifest.txt"
        if kind == "kill" and name in seen:
            yield f"{place}: {name} is also at {seen[name]}"
        seen[name] = place
    yield from (f"tests/crash/manifest.txt: the code has no {name}" for name in sorted(set(kills) | errors)
                if name not in seen)
    yield from (f"tests/crash/manifest.txt: {name} does not say what has been done" for name, what in kills.items() if not what)


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = list(check(root))
    print("\n".join(offences) or "fail points: as the manifest says")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

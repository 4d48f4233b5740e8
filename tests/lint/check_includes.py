#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what the compiler has to read: the lines of a source and of all its headers, the mean and the largest of each module, as
includes.txt says. A tenth more is an offence, and so is a tenth less: the budget is then written anew.
check_includes.py BUILD [TABLE]          exit code 1 and one line for each offence
check_includes.py BUILD --write          writes the table"""
import functools
import re
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).with_name("includes.txt")
HEAD = """# Thousands of lines that the compiler reads for a source of a module, with all headers: mean and largest (check_includes.py --write).
# Of GCC {gcc}: the headers of another one have other sizes.
"""


def read_deps(text):
    """{object: the files it was made of}, of `ninja -t deps`."""
    found, files = {}, None
    for line in text.splitlines():
        if line.startswith("    "):
            files.append(line.strip())
        elif ": #deps" in line:
            files = found.setdefault(line.split(":", 1)[0], [])
    return found


def sizes_of(deps, lines):
    """{module: (mean, largest, the largest object)} in thousands of lines."""
    modules = {}
    for made, files in deps.items():
        if match := re.match(r"src/([a-z]+)/lib\1\.a\.p/", made):
            modules.setdefault(match[1], []).append((sum(map(lines, files)) / 1000, made))
    return {module: (sum(size for size, _ in sizes) / len(sizes), *max(sizes)) for module, sizes in sorted(modules.items())}


def read_table(text):
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {module: (float(mean), float(largest)) for module, mean, largest in rows}


def check(sizes, table):
    yield from (f"{module} is not in includes.txt" for module in sizes.keys() - table.keys())
    yield from (f"includes.txt: there is no module {module}" for module in table.keys() - sizes.keys())
    for module in sizes.keys() & table.keys():
        mean, largest, made = sizes[module]
        for what, now, budget in (("the mean source", mean, table[module][0]), (made, largest, table[module][1])):
            if now > 1.1 * budget:
                yield f"{module}: {what} has {now:.1f} thousand lines with its headers, {budget} are planned: include less, or write the table anew"
            elif now < 0.9 * budget:
                yield f"{module}: {what} has {now:.1f} thousand lines with its headers, {budget} are planned: write the table anew"


def main():
    build = Path(sys.argv[1])
    gcc = subprocess.run(["c++", "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    lines = functools.cache(lambda name: (build / name).read_bytes().count(b"\n"))
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    sizes = sizes_of(read_deps(deps), lines)
    if not sizes:
        print(f"{build}: no source was compiled here")
        return 1
    if sys.argv[2:] == ["--write"]:
        TABLE.write_text(HEAD.format(gcc=gcc) + "".join(f"{module} {mean:.0f} {largest:.0f}\n" for module, (mean, largest, _) in sizes.items()))
        return 0
    text = (Path(sys.argv[2]) if len(sys.argv) > 2 else TABLE).read_text()
    if f"Of GCC {gcc}:" not in text:
        print(f"includes: not compared, the table is not of GCC {gcc}")
        return 77
    offences = sorted(check(sizes, read_table(text)))
    print("\n".join(offences) or "includes: as includes.txt says")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

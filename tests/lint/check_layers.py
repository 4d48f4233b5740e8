#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the arrows between modules and the owner of each third-party header, as layers.txt says. Exit code 1 and one line
for each offence.   check_layers.py [ROOT]"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def read_layers(text):
    """(modules, owners, words): {module: allowed}, [(header prefix, owners)], {module: words}"""
    modules, owners, words = {}, [], {}
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("<"):
            prefix, owner = line.split("=")
            owners.append((prefix.strip().strip("<>"), owner.split()))
        elif line.startswith("!"):
            module, some = line[1:].split(":")
            words[module.strip()] = some.split()
        else:
            module, allowed = line.split(":")
            modules[module.strip()] = allowed.split()
    return modules, owners, words


def check_table(modules):
    """The table itself: only known modules, and no circle, because each module may use only what stands above it."""
    seen = []
    for module, allowed in modules.items():
        for other in allowed:
            if other not in seen:
                yield f"layers.txt: {module} may use {other}, which does not stand before it"
        seen.append(module)


def check_file(path, module, is_contract, modules, owners, words, root):
    where = path.relative_to(root)
    text = path.read_text(errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//", 1)[0].lower()
        for word in words.get(module, ()):
            if word in code:
                yield f"{where}:{number}: the word {word} has no place in {module}"
        if not (match := INCLUDE.match(line)):
            continue
        header = match[2]
        if header.startswith("inductorfs/"):
            other = header.split("/")[1]
            if other not in modules:
                yield f"{where}:{number}: there is no module {other}"
            elif other != module and other not in modules[module]:
                yield f"{where}:{number}: {module} may not use {other}"
        elif header.split("/")[0] in modules and "/" in header and match[1] == '"':
            if header.split("/")[0] != module:
                yield f"{where}:{number}: a private header of {header.split('/')[0]}"
        for prefix, allowed in owners:
            if header.startswith(prefix):
                name = f"{module}/{path.name}"
                if name in allowed:
                    continue
                if module not in allowed:
                    yield f"{where}:{number}: <{header}> belongs to {' '.join(allowed)}"
                elif is_contract:
                    yield f"{where}:{number}: a contract header may not show <{header}>"


def check(root, table):
    modules, owners, words = read_layers(table)
    yield from check_table(modules)
    for base, is_contract in ((root / "include" / "inductorfs", True), (root / "src", False)):
        for path in sorted(base.rglob("*")):
            if path.suffix not in (".h", ".cc") or not path.is_file():
                continue
            module = path.relative_to(base).parts[0]
            if module not in modules:
                yield f"{path.relative_to(root)}: {module} is not in layers.txt"
                continue
            yield from check_file(path, module, is_contract, modules, owners, words, root)


def main():
    here = Path(__file__).resolve()
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here.parents[2]
    offences = list(check(root, (here.parent / "layers.txt").read_text()))
    print("\n".join(offences) or "layers: as layers.txt says")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the arrows between modules, those between a module's folders, and the owner of each third-party header, as
layers.txt says. Exit code 1 and one line for each offence.   check_layers.py [ROOT]"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class Layers:
    """What layers.txt says: {module: allowed}, {module: its folders, the lowest first}, [(header prefix, owners)],
    {module: words}."""
    def __init__(self):
        self.modules, self.folders, self.owners, self.words = {}, {}, [], {}


def read_layers(text):
    layers = Layers()
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("<"):
            prefix, owner = line.split("=")
            layers.owners.append((prefix.strip().strip("<>"), owner.split()))
        elif line.startswith("!"):
            module, some = line[1:].split(":")
            layers.words[module.strip()] = some.split()
        else:
            module, allowed = line.split(":")
            if module.endswith("/"):
                layers.folders[module[:-1]] = allowed.split()
            else:
                layers.modules[module.strip()] = allowed.split()
    return layers


def check_table(modules):
    """The table itself: only known modules, and no circle, because each module may use only what stands above it."""
    seen = []
    for module, allowed in modules.items():
        for other in allowed:
            if other not in seen:
                yield f"layers.txt: {module} may use {other}, which does not stand before it"
        seen.append(module)


def check_folder(folder, header, folders):
    """A file of a folder may include headers of its own folder and of lower ones; one beside the folders, of all."""
    parts = header.split("/")
    other = parts[1] if len(parts) > 2 else ""
    if folder and not other:
        return f"{folder} may not use a header that stands above the folders"
    if folder and other in folders and folders.index(other) > folders.index(folder):
        return f"{folder} may not use {other}"
    return None


def check_file(path, module, is_contract, layers, root):
    modules, owners, words = layers.modules, layers.owners, layers.words
    where = path.relative_to(root)
    folders = layers.folders.get(module, [])
    folder = where.parts[2] if len(where.parts) > 3 and not is_contract else ""
    if folder and folders and folder not in folders:
        yield f"{where}: the folder {folder} is not in layers.txt"
        return
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
            elif folders and (offence := check_folder(folder, header, folders)):
                yield f"{where}:{number}: {offence}"
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
    layers = read_layers(table)
    yield from check_table(layers.modules)
    for base, is_contract in ((root / "include" / "inductorfs", True), (root / "src", False)):
        for path in sorted(base.rglob("*")):
            if path.suffix not in (".h", ".cc") or not path.is_file():
                continue
            module = path.relative_to(base).parts[0]
            if module not in layers.modules:
                yield f"{path.relative_to(root)}: {module} is not in layers.txt"
                continue
            yield from check_file(path, module, is_contract, layers, root)


def main():
    here = Path(__file__).resolve()
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here.parents[2]
    offences = list(check(root, (here.parent / "layers.txt").read_text()))
    print("\n".join(offences) or "layers: as layers.txt says")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the Debian package to the tree: it has each file that Meson installs, and needs for its build what `scripts/deps build`
installs. Exit code 1 and one line for each offence.   check_packaging.py [ROOT]"""
import re
import sys
from pathlib import Path

# What scripts/deps installs for a build and the package need not ask for: a cache, what debhelper brings, what is there at run time.
NOT_ASKED = {"ccache", "make", "fuse3", "git"}


def installed_by_meson(root):
    """Names of files, as the build files of Meson install them."""
    names = set()
    for path in [root / "meson.build", *sorted((root / "src").rglob("meson.build"))]:
        text = re.sub(r"#.*", "", path.read_text())
        names.update(re.findall(r"executable\('([\w.-]+)'[^\n]*(?:\n[^\n=]*)?install: true", text))
        names.update(re.findall(r"custom_target\([^)]*output: '([\w.-]+)'[^)]*install: true", text))
        for call in re.findall(r"install_(?:data|man)\((.*)\)", text):
            names.update(Path(name).name for name in re.findall(r"'([^']*/[^']*)'", call.split("install_dir")[0]))
        names.update(re.findall(r"'(mount[\w.]+)'", "".join(re.findall(r"foreach name : (.*)\n  install_symlink", text))))
    return names


def check(root):
    debian = root / "packaging" / "debian"
    listed = {Path(line.split()[0]).name for line in (debian / "inductorfs.install").read_text().splitlines() if line.strip()}
    made = installed_by_meson(root)
    if not made:
        yield "meson.build: no installed file was found; has it another form?"
    yield from (f"packaging/debian/inductorfs.install: {name} is missing" for name in sorted(made - listed))
    yield from (f"packaging/debian/inductorfs.install: Meson installs no {name}" for name in sorted(listed - made))
    deps = re.search(r"^build=\((.*?)\)", (root / "scripts/deps").read_text(), re.MULTILINE | re.DOTALL)
    needed = set(deps[1].split()) - NOT_ASKED if deps else set()
    field = re.search(r"^Build-Depends:(.*?)^\S", (debian / "control").read_text(), re.MULTILINE | re.DOTALL)
    asked = {re.split(r"[\s(]", one.strip())[0] for one in field[1].split(",")} - {"debhelper-compat", ""} if field else set()
    yield from (f"packaging/debian/control: Build-Depends lacks {name}" for name in sorted(needed - asked))
    yield from (f"scripts/deps: the group build lacks {name}" for name in sorted(asked - needed))


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = list(check(root))
    print("\n".join(offences) or "packaging: as Meson installs")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over src/, of each file only what it has not said of these very bytes before: a stamp in the user's cache stands
for a file without findings, its project headers, its compile command, .clang-tidy and the version of clang-tidy. Headers
of the system do not count. Exit code 1 when anything is found.   run_tidy.py BUILD [FILE...]"""
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAMPS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inductorfs" / "tidy"
UNUSED_AFTER = 30 * 24 * 3600  # seconds; a stamp is touched when it is used
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)


def search_path(command, directory):
    """The directories of -I, as the compiler takes them."""
    words = shlex.split(command)
    return [(directory / word[2:]).resolve() for word in words if word.startswith("-I")]


def closure(source, folders):
    """The file and the headers that it includes in quotes, and theirs, as far as they can be found."""
    found, waiting = {}, [source.resolve()]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = path.read_bytes()
        for name in INCLUDE.findall(found[path]):
            places = [folder / os.fsdecode(name) for folder in (path.parent, *folders)]
            waiting += [place.resolve() for place in places if place.is_file()][:1]
    return found


def key_of(source, command, directory, what_counts):
    """`what_counts`: the configuration and the version."""
    digest = hashlib.sha256(what_counts)
    digest.update(command.encode())
    for path, content in sorted(closure(source, search_path(command, directory)).items()):
        digest.update(f"\0{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def make_generated_headers(build):
    targets = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    headers = [line.split(":")[0] for line in targets.splitlines() if line.endswith(".h: CUSTOM_COMMAND")]
    if headers:
        subprocess.run(["ninja", "-C", build, *headers], check=True, stdout=subprocess.DEVNULL)


def look(build, source):
    """What clang-tidy finds; empty when nothing."""
    done = subprocess.run(["clang-tidy", "--quiet", "-p", build, source], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    build, wanted = Path(sys.argv[1]), [Path(name).resolve() for name in sys.argv[2:]]
    make_generated_headers(build)
    what_counts = (ROOT / ".clang-tidy").read_bytes() + subprocess.run(["clang-tidy", "--version"], capture_output=True,
                                                                       check=True).stdout
    STAMPS.mkdir(parents=True, exist_ok=True)
    for stamp in STAMPS.iterdir():
        if time.time() - stamp.stat().st_mtime > UNUSED_AFTER:
            stamp.unlink(missing_ok=True)
    begin, known, waiting = time.monotonic(), 0, []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        directory = Path(entry["directory"])
        source = (directory / entry["file"]).resolve()
        if not source.is_relative_to(ROOT / "src") or (wanted and source not in wanted):
            continue
        stamp = STAMPS / key_of(source, entry["command"], directory, what_counts)
        if stamp.exists():
            stamp.touch()
            known += 1
        elif source not in [other for other, _ in waiting]:  # some files are compiled twice
            waiting.append((source, stamp))

    def check(item):
        source, stamp = item
        findings = look(build, source)
        if not findings:
            stamp.touch()
        return findings

    with ThreadPoolExecutor(int(os.environ.get("INDUCTORFS_TIDY_JOBS") or os.cpu_count())) as pool:
        found = [findings for findings in pool.map(check, waiting) if findings]
    print("".join(found) + f"tidy: {len(waiting)} files looked at in {time.monotonic() - begin:.0f} s, {known} known to be sound, "
          f"{len(found)} with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

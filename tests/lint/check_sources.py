#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what no compiler checks: lengths of files, first lines, locks, words, names of types, the thread sentence of each
class. Exit code 1 and one line for each offence; what is over the aim but under the limit is only said.
check_sources.py [ROOT]"""
import re
import sys
from pathlib import Path

# (aim, limit) in lines
LENGTHS = {"source": (500, 700), "contract header": (200, 300), "private header": (150, 250), "script": (300, 500)}
LICENCE = "SPDX-License-Identifier: Apache-2.0"
LOCKS = re.compile(r"\bstd::(recursive_|shared_|timed_)*mutex\b|\bstd::condition_variable|\bpthread_(mutex|rwlock|cond)_t"
                   r"|\bstd::(lock_guard|scoped_lock)\b")
WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\b[Ff]or now\b")
SLEEPS = re.compile(r"\bsleep_for\b|\bsleep_until\b|\busleep\s*\(|\bnanosleep\s*\(|(?<![\w.])sleep\s*\(")
WORDS_ALLOWED = {"tests/lint/check_sources.py", "tests/lint/test_lint.py"}
SKIPS = re.compile(r"\bGTEST_SKIP\b|\bpytest\.(skip|importorskip)\b|\bmark\.skip|\bSkipTest\b")
# Both fail where CI is set; and the one ring that CI may skip.
SKIPS_ALLOWED = {"tests/support/lacks.h", "tests/support/python/inductorfs_testing/fixtures.py", "tests/gpu/test_gpu.py",
                 *WORDS_ALLOWED}
# getaddrinfo has no deadline, nor has the kernel while it looks at another user's process: the caller leaves, the thread cannot.
DETACHED = {"src/redis/dial.cc", "src/fingerprint/common/background.cc", "src/supervisor/carriers.cc"}
# Root's worker is another user than who mounted (docs/decisions/0042). Whose a file on the disk is one place alone asks.
USERS = re.compile(r"\bgete?[ug]id\(")
OF_WORKER = re.compile(r"(?:src|include/inductorfs)/(?:vfs|store|catalog|remote|redis|ledger|takeover|layout|codec|archive)/")
# Answers are another process's, which may lie: nlohmann's value() throws where a member is of another type, and no command catches that.
THROWS = re.compile(r"\.value\(\"")
DISK_USERS = {"src/vfs/disk/inode_marks.cc"}
THREADS = ("Immutable after construction.", "Safe for concurrent use.", "safe for concurrent use", "Needs external",
           "Confined to the")
CLASS = re.compile(r"^(template\s*<[^>]*>\s*)?class\s+(?!\w+\s*;)(\[\[nodiscard\]\]\s*)?(\w+)[^;]*\{")

# A type that other files can name: defined at namespace scope of a header.
TYPE = re.compile(r"^(?:struct|class|enum class|using)\s+(?:\[\[nodiscard\]\]\s*)?(\w+)(?=[^;]*\{|\s*$|\s+final\b|\s*=)")


FUNCTION_LINES = 60
NO_FUNCTION = re.compile(r"(namespace|class|struct|union|enum|extern|using|constexpr .*=|const .*=|#)\b")


def kind_of(relative):
    if relative.parts[0] == "include":
        return "contract header"
    if relative.suffix == ".h":
        return "private header"
    return "source" if relative.suffix == ".cc" else "script"


def check_classes(relative, lines):
    """Each class of a contract header says how threads may use it."""
    whole = "\n".join(lines)
    everything = re.search(r"Everything (in|here)[^\n]*\n?[^\n]*(concurrent|pure)", whole)
    for number, line in enumerate(lines, 1):
        if not CLASS.match(line) or everything:
            continue
        above = number - 2
        while above >= 0 and (lines[above].startswith("///") or lines[above].startswith("template")):
            above -= 1
        comment = " ".join(lines[above + 1:number - 1])
        if not any(sentence in comment for sentence in THREADS):
            yield f"{relative}:{number}: class {CLASS.match(line)[3]} does not say how threads may use it"


def check_text(relative, lines):
    name, kind = relative.as_posix(), kind_of(relative)
    aim, limit = LENGTHS[kind]
    if len(lines) > limit:
        yield f"{name}: {len(lines)} lines; a {kind} has at most {limit}: split it by responsibility"
    if LICENCE not in "\n".join(lines[:2]):
        yield f"{name}:1: no {LICENCE}"
    if relative.suffix == ".h" and "#pragma once" not in lines:
        yield f"{name}: no #pragma once"
    for number, line in enumerate(lines, 1):
        if name not in WORDS_ALLOWED and (match := WORDS.search(line)):
            yield f"{name}:{number}: the word {match[0]}"
        if name not in SKIPS_ALLOWED and SKIPS.search(line):
            yield f"{name}:{number}: a skip that CI would not see; use INDUCTORFS_LACKS of tests/support/lacks.h, or lack()"
        if relative.suffix not in (".h", ".cc"):
            continue
        if name != "include/inductorfs/base/guarded.h" and relative.parts[0] != "tests" and LOCKS.search(line):
            yield f"{name}:{number}: a bare lock; use Guarded<T> of base/guarded.h"
        if relative.parts[0] == "tests" and SLEEPS.search(line):
            yield f"{name}:{number}: a sleep in a test; wait for a condition with a deadline"
        if ".detach()" in line and name not in DETACHED:
            yield f"{name}:{number}: a detached thread"
        if name.startswith("src/cli/") and THROWS.search(line):
            yield f"{name}:{number}: a member of an answer that may be of another type; use text_at(), number_at() or part_of() of config/text.h"
        if OF_WORKER.match(name) and name not in DISK_USERS and USERS.search(line):
            yield f"{name}:{number}: the user of a process that is not who mounted; use own_uid() of base/own_user.h"


def check_functions(relative, lines):
    """clang-format puts the first line of a function of a namespace, and its end, into the first column."""
    start = 0
    for number, line in enumerate(lines, 1):
        if line == "}" and start and number - start >= FUNCTION_LINES:
            yield f"{relative}:{start}: a function of {number - start + 1} lines, more than {FUNCTION_LINES}: name its parts"
        if line[:1].isalpha():
            start = 0 if NO_FUNCTION.match(line) else number


def check_names(sources):
    """A name stands for one type in all headers. sources: (relative path, lines)"""
    homes = {}
    for relative, lines in sources:
        if relative.suffix != ".h" or relative.parts[0] == "tests":
            continue
        for number, line in enumerate(lines, 1):
            match = TYPE.match(line)
            if match and match[1] in homes:
                yield f"{relative}:{number}: {match[1]} is the name of a type in {homes[match[1]]} already"
            elif match:
                homes[match[1]] = relative.as_posix()


def files(root):
    for folder, suffixes in (("include", (".h",)), ("src", (".h", ".cc")), ("tests", (".h", ".cc", ".py"))):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path


def check(root):
    """(offences, remarks)"""
    sources = [(path.relative_to(root), path.read_text(errors="replace").splitlines()) for path in files(root)]
    offences, remarks = list(check_names(sources)), []
    for relative, lines in sources:
        offences += check_text(relative, lines)
        if relative.parts[0] == "src":
            offences += check_functions(relative, lines)
        if relative.parts[0] == "include":
            offences += check_classes(relative, lines)
        aim, limit = LENGTHS[kind_of(relative)]
        if aim < len(lines) <= limit:
            remarks.append(f"{relative}: {len(lines)} lines, aim {aim}")
    return offences, remarks


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences, remarks = check(root)
    print("\n".join(remarks + offences) or "sources: as the style says")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

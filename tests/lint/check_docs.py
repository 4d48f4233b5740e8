#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what the documents say of the code: links, paths and constants that exist, every option in the man pages, every
error code with its errno in docs/semantics, the families of docs/families.md, the modules of docs/architecture.md, the limits,
the counters and events, the form of decisions, the size of pages and of cells, and the map. Exit code 1 and one line for each offence.   check_docs.py [ROOT]"""
import re
import sys
from pathlib import Path

from documented_events import check_events, check_names
from documented_limits import check_limits
from documented_pages import check_pages, documents_for_users, text_of_pages, without_blocks

# Of a link or an image; its text may go over the end of a line.
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:src|include|tests|docs|scripts|systemd|\.ci)/[\w./@-]+)`")
CONSTANT = re.compile(r"`(?:\w+::)?(k[A-Z]\w*)`")
TEST_NAME = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
TEST = re.compile(r"\bTEST(?:_F|_P)?\((\w+), (\w+)\)")
OPTION = re.compile(r'Option\{"([a-z-]+)", Kind::(\w+)')
DEFAULT = re.compile(r'Option\{"([a-z-]+)", Kind::\w+, "[^"]*", "(\d+[KMGT]?)"')
# An option of ours in a document: of a command that is shown, or by itself.
SAID_OPTION = re.compile(r"(?:`|\binductorfs [^`#\n]*?)(--[a-z][a-z-]*)")
TUNED = re.compile(r"^\| `([a-z-]+)` \(([\d,]+[KMGT]?)", re.MULTILINE)
TOML = re.compile(r"^([a-z-]+) = ", re.MULTILINE)
OTHER_OPTION = re.compile(r'\badd(?:_path)?\("(--[a-z-]+)"')
# Of start_thread(), or of an object that starts its threads under this name.
THREAD = re.compile(r'(?:start_thread\(|kLookName = |(?:_pool|background)_\(|Background \w+\{)"([\w-]+)"')
# The project stands alone: no document may lead out of it.
FOREIGN = re.compile(r"\.\./shared|(?<![\w/])/work\b/")
# Keys of a family's table in the configuration file.
FAMILY_KEYS = ("shared", "pattern", "facets")
PARTS = ("**Status**", "**Context.**", "**Options.**", "**Outcome.**", "**Consequences.**", "**Checked by**")


def documents(root):
    return sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))


def text_of(root, *folders):
    return "\n".join(path.read_text(errors="replace") for folder in folders for path in sorted((root / folder).rglob("*"))
                     if path.suffix in (".h", ".cc"))


def slug(heading):
    """The anchor that a heading gets."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(path):
    return {slug(match[1]) for match in re.finditer(r"^#+ (.*)$", without_blocks(path.read_text()), re.MULTILINE)}


def check_link(root, path, target):
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    file = (path.parent / name).resolve() if name else path
    if not file.is_relative_to(root) or not file.exists():
        return f"there is no {name}"
    if anchor and anchor not in anchors(file):
        return f"{file.relative_to(root)} has no heading #{anchor}"
    return None


def check_text(root, path, code):
    """Links, paths, constants and foreign places of one document."""
    where, text = path.relative_to(root), path.read_text()
    plain = without_blocks(text)
    for match in LINK.finditer(plain):
        if problem := check_link(root, path, match[1]):
            yield f"{where}:{plain.count(chr(10), 0, match.start(1)) + 1}: {problem}"
    for number, line in enumerate(text.splitlines(), 1):
        for name in CODE_PATH.findall(line):
            if not (root / name).exists():
                yield f"{where}:{number}: there is no {name}"
        for name in CONSTANT.findall(line):
            if not re.search(rf"\b{name}\b", code):
                yield f"{where}:{number}: the code has no {name}"
        if FOREIGN.search(line):
            yield f"{where}:{number}: leads out of the project"


def check_options(root):
    """Every option of the table in both man pages, those of the other commands in the first."""
    manual = (root / "docs/man/inductorfs.1").read_text().replace("\\-", "-")
    keys = (root / "docs/man/inductorfs.conf.5").read_text().replace("\\-", "-")
    table = OPTION.findall((root / "src/config/settings.cc").read_text())
    if not table:
        yield "src/config/settings.cc: no option was found; has the table another form?"
    names = [name for name, _ in table] + [f"no-{name}" for name, kind in table if kind == "kToggle"]
    for source in (root / "src/cli").rglob("*.[ch]*"):
        names += [name[2:] for name in OTHER_OPTION.findall(source.read_text())]
    for name in sorted(set(names)):
        if not re.search(rf"Fl -{re.escape(name)}(?![\w-])", manual):
            yield f"docs/man/inductorfs.1: the option --{name} is missing"
    known = {name for name, _ in table}
    said = set(re.findall(r"^\.It ([a-z-]+) Ta", keys, re.MULTILINE))
    yield from (f"docs/man/inductorfs.conf.5: the key {name} is missing" for name in sorted(known - said))
    yield from (f"docs/man/inductorfs.conf.5: there is no option {name}" for name in sorted(said - known))


def blocks_of(manual):
    """{option: its text} of the man page; an item may name two."""
    found = {}
    for block in re.split(r"^\.It ", manual, flags=re.MULTILINE)[1:]:
        for name in re.findall(r"Fl -([a-z-]+)", block.split("\n", 1)[0]):
            found[name] = found.get(name, "") + block
    return found


def check_said_options(root):
    """What the documents say of options: each of them exists, and each default is the one that help shows."""
    table = (root / "src/config/settings.cc").read_text()
    known = {"version", "help"} | {name for name, _ in OPTION.findall(table)}
    known |= {f"no-{name}" for name, kind in OPTION.findall(table) if kind == "kToggle"}
    keys = known - {"version", "help"}
    for source in (root / "src/cli").rglob("*.[ch]*"):
        known |= {name[2:] for name in OTHER_OPTION.findall(source.read_text())}
    manual = (root / "docs/man/inductorfs.1").read_text().replace("\\-", "-")
    for name in sorted(set(re.findall(r"Fl -([a-z-]+)", manual)) - known):
        yield f"docs/man/inductorfs.1: there is no option --{name}"
    defaults, blocks = dict(DEFAULT.findall(table)), blocks_of(manual)
    for name, value in defaults.items():
        if not re.search(rf"^Default: {value}\.$", blocks.get(name, ""), re.MULTILINE):
            yield f"docs/man/inductorfs.1: the default of --{name} is not said to be {value}"
    for path in [*documents_for_users(root), root / "docs/man/inductorfs.conf.5"]:
        where, text = path.relative_to(root), path.read_text()
        for name in SAID_OPTION.findall(text) if path.suffix == ".md" else []:
            if name[2:] not in known:
                yield f"{where}: there is no option {name}"
        yield from (f"{where}: there is no key {key}" for key in TOML.findall(text) if key not in keys and key not in FAMILY_KEYS)
        for name, value in TUNED.findall(text):
            if defaults.get(name, value.replace(",", "")) != value.replace(",", ""):
                yield f"{where}: the default of {name} is {defaults[name]}, not {value}"


def check_modules(root):
    """Each module of tests/lint/layers.txt has its row in the architecture, with what it may use."""
    text = (root / "docs/architecture.md").read_text().split("## Layers", 1)[-1].split("\n## ", 1)[0]
    rows = {name: set(used.split()) for name, used in re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", text, re.MULTILINE)}
    layers = {}
    for line in (root / "tests/lint/layers.txt").read_text().splitlines():
        if match := re.match(r"(\w+):((?: \w+)*)$", line):
            layers[match[1]] = set(match[2].split())
    for name in sorted(layers.keys() | rows.keys()):
        if name not in rows or name not in layers:
            yield f"docs/architecture.md: {'no row for' if name not in rows else 'layers.txt has no'} module {name}"
        elif rows[name] not in (layers[name], {"all", "but", *(layers.keys() - layers[name] - {name})}):
            yield f"docs/architecture.md: {name} may use {' '.join(sorted(layers[name]))}"


def check_threads(root):
    """Every thread that the code names has its row in the architecture, and every row its thread."""
    text = (root / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`[^|]*) \|", text.split("## Threads", 1)[-1].split("\n## ", 1)[0], re.MULTILINE)
    said = {name.removesuffix("N") for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    named = set()
    for source in sorted((root / "src").rglob("*")):
        if source.suffix not in (".cc", ".h"):
            continue
        named.update(THREAD.findall(source.read_text()))
    yield from (f"docs/architecture.md: the thread {name} is missing" for name in sorted(named - said))
    yield from (f"docs/architecture.md: no code names a thread {name}" for name in sorted(said - named))


def check_locks(root, code):
    """Every lock that the order in the architecture names is a member of the class that it names."""
    text = (root / "docs/architecture.md").read_text().split("## Lock order", 1)[-1].split("\n## ", 1)[0]
    for owner, name in re.findall(r"`(\w+)::(\w+)`", text):
        if not re.search(rf"\b(?:class|struct) {owner}\b", code) or not re.search(rf"Guarded<[^;]*> {name}\b", code):
            yield f"docs/architecture.md: no code has a lock {owner}::{name}"


def errno_of_codes(root):
    """{kName: errno} as errno_map.cc has it: labels that follow each other share the return after them."""
    labels, found = [], {}
    for line in (root / "src/fuse/errno_map.cc").read_text().splitlines():
        if match := re.search(r"case ErrorCode::(\w+):", line):
            labels.append(match[1])
        elif match := re.search(r"return (E\w+);", line):
            found.update(dict.fromkeys(labels, match[1]))
            labels = []
    return found


def check_error_codes(root):
    enum = re.search(r"enum class ErrorCode \{(.*?)\}", (root / "include/inductorfs/base/result.h").read_text(), re.DOTALL)
    codes = re.findall(r"\bk\w+", enum[1]) if enum else []
    if not codes:
        yield "include/inductorfs/base/result.h: no ErrorCode was found"
    semantics, errnos = text_of_pages(root, "semantics"), errno_of_codes(root)
    for code in codes:
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", code[1:]).lower()
        if f"| `{code}` | `{name}` | {errnos.get(code)} |" not in semantics:
            yield f"docs/semantics: no row `{code}`, `{name}`, {errnos.get(code)}"


STATUS_PAGES = {"docs/operations/commands.md": (r"^## Exit status$(.*?)(?=^## |\Z)", r"^\| (\d+) \|"),
                "docs/man/inductorfs.1": (r"^\.Sh EXIT STATUS$(.*?)(?=^\.Sh |\Z)", r"^\.It (\d+)$")}


def check_statuses(root):
    """The statuses of a command are those of the program's header, wherever a document says one; no command returns a number."""
    known = set(re.findall(r"^inline constexpr int kExit\w+ = (\d+);", (root / "include/inductorfs/cli/run.h").read_text(), re.MULTILINE))
    for name, (section, row) in STATUS_PAGES.items():
        text = re.search(section, (root / name).read_text(), re.MULTILINE | re.DOTALL)
        said = set(re.findall(row, text[1], re.MULTILINE)) if text else set()
        yield from (f"{name}: no row of exit status {status}" for status in sorted(known - said))
        yield from (f"{name}: no command has exit status {status}" for status in sorted(said - known))
    for path in documents(root):
        for status in re.findall(r"exit status(?: is)? (\d+)", path.read_text()):
            if status not in known:
                yield f"{path.relative_to(root)}: no command has exit status {status}"
    for path in sorted((root / "src/cli").rglob("*_command.cc")):
        for match in re.finditer(r"int run\([^;{]*\{.*?^  \}", path.read_text(), re.MULTILINE | re.DOTALL):
            if re.search(r"\breturn \d+;", match[0]):
                yield f"{path.relative_to(root)}: run() returns a number, not a kExit constant"


def check_families(root):
    sources = [root / "src/layout/rules.cc", *sorted((root / "src/layout/engines").glob("*.cc"))]
    rules = {name for source in sources for name in re.findall(r'\.name = "(\w+)"', source.read_text())}
    table = (root / "docs/families.md").read_text().split("\n## ", 1)[0]
    said = set(re.findall(r"^\| (\w+) \| `", table, re.MULTILINE))
    if not said:
        yield "docs/families.md: no family was found"
    yield from (f"docs/families.md: src/layout has no family {name}" for name in sorted(said - rules))
    yield from (f"docs/families.md: the family {name} is missing" for name in sorted(rules - said))


def check_decisions(root):
    tests = set(TEST.findall(text_of(root, "tests")))
    numbers = []
    for path in sorted((root / "docs/decisions").glob("*.md")):
        where, text = path.relative_to(root), path.read_text()
        numbers.append(path.name[:4])
        if not re.match(rf"# {path.name[:4]}: ", text):
            yield f"{where}:1: the title does not begin with # {path.name[:4]}:"
        yield from (f"{where}: no {part}" for part in PARTS if part not in text)
        yield from (f"{where}: there is no test {suite}.{name}" for suite, name in TEST_NAME.findall(text)
                    if (suite, name) not in tests)
    if numbers != [f"{number:04}" for number in range(1, len(numbers) + 1)]:
        yield "docs/decisions: the numbers do not follow each other"


def check(root):
    code = text_of(root, "include", "src")
    for path in documents(root):
        yield from check_text(root, path, code)
    yield from check_options(root)
    yield from check_said_options(root)
    yield from check_limits(root)
    yield from check_events(root)
    yield from check_names(root)
    yield from check_modules(root)
    yield from check_threads(root)
    yield from check_locks(root, code)
    yield from check_error_codes(root)
    yield from check_statuses(root)
    yield from check_families(root)
    yield from check_decisions(root)
    yield from check_pages(root)


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = list(check(root))
    print("\n".join(offences) or "documents: as the code says")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())

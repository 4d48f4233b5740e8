# SPDX-License-Identifier: Apache-2.0
"""Holds the tables of the log's events in docs/operations against the code, in both directions, and the counters and events that any document
names. Used by check_docs.py.

An event is a literal `part.event` in a call of log:: or log_line(). Its part is the module that writes it, or one of PARTS. The tables
have one row for each event, with the levels that the code passes."""
import re

from documented_pages import documents_for_users, pages

CALL = re.compile(r"\b(?:log::(write_limited|write|debug|info|warning|error)|(?<!void )(log_line))\(")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
TOKEN = re.compile(LITERAL.pattern + r"|[(){}\[\],]")
LEVEL = re.compile(r'\bLevel::k(\w+)|"(\w+)"')
FORM = re.compile(r"([a-z]+)\.[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
ROW = re.compile(r"^\| `([^`]*)` \| ([^|]*) \|[^|]*\S[^|]*\|[^|]*\|$", re.MULTILINE)
TABLE = re.compile(r"^\| event \| level \|.*\n\|[-|]+\|\n((?:\|.*\|\n?)*)", re.MULTILINE)
WORD = re.compile(r'"((?:[a-z]+\.)?[a-z][a-z0-9_]*)[" ]')
COUNTER = re.compile(r'get\("([a-z]+)\.[a-z_]+"')
SAID = re.compile(r"`([a-z]+)\.([a-z][a-z0-9]*(?:_[a-z0-9]+)*)`")
FILES = ("conf", "sqlite", "toml")  # what ends the name of a file
# A module whose events begin with the part of it that writes them, as its counters do.
PARTS = {"vfs": {"fetch", "recovery", "seal", "triton", "view"}}


def arguments(text, start):
    """The arguments of the call whose opening bracket is before `start`."""
    found, depth, begun = [], 0, start
    for token in TOKEN.finditer(text, start):
        at = token.start()
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            if depth == 0:
                return [*found, text[begun:at]]
            depth -= 1
        elif token[0] == "," and depth == 0:
            found.append(text[begun:at])
            begun = at + 1
    return found


def calls(text):
    """(line, names, levels) of each event that is written; no levels where a variable has them."""
    for match in CALL.finditer(text):
        given = arguments(text, match.end())
        has_level = bool(match[2]) or match[1].startswith("write")
        names = LITERAL.findall(given[1 if has_level else 0]) if len(given) > has_level else []
        if match[2]:  # a format: the event and its fields
            names = [name.split()[0] for name in names[:1] if name.split()]
        levels = {(one or other).lower() for one, other in LEVEL.findall(given[0])} if has_level else {match[1]}
        yield text.count("\n", 0, match.start()) + 1, names, levels


def check_name(where, module, names):
    if not names:
        yield f"{where}: the name of the event is no literal"
    for name in names:
        match, parts = FORM.fullmatch(name), PARTS.get(module, {module})
        if not match or match[1] not in parts:
            yield f"{where}: the event {name} is not called {'|'.join(sorted(parts))}.lower_case"


def check_events(root):
    written = {}  # name: levels, None when one of them is not known
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        where = path.relative_to(root)
        for line, names, levels in calls(path.read_text(errors="replace")):
            yield from check_name(f"{where}:{line}", where.parts[1], names)
            for name in names:
                before = written.get(name, set())
                written[name] = before | levels if levels and before is not None else None
    said = {}  # name: (the page, levels)
    for path in pages(root, "operations"):
        where = path.relative_to(root)
        for name, levels in (row for table in TABLE.findall(path.read_text()) for row in ROW.findall(table)):
            if name in said:
                yield f"{where}: {said[name][0]} has the event {name} too"
            said[name] = where, set(re.findall(r"\w+", levels))
    yield from (f"docs/operations: the event {name} is missing" for name in sorted(written.keys() - said.keys()))
    yield from (f"{said[name][0]}: no code writes the event {name}" for name in sorted(said.keys() - written.keys()))
    for name in sorted(said.keys() & written.keys()):
        where, levels = said[name]
        if written[name] is not None and levels != written[name]:
            yield f"{where}: the level of {name} is {', '.join(sorted(written[name]))}"


def check_names(root):
    """Every `part.name` that a document says, if the part is one of counters or events, stands in the code; a part may be put before it there."""
    modules = {path.name for path in (root / "src").iterdir()}
    code = "\n".join(path.read_text(errors="replace") for path in sorted((root / "src").rglob("*")) if path.suffix in (".cc", ".h"))
    literals = set(WORD.findall(code))
    parts = set(COUNTER.findall(code)) | {match[1] for match in map(FORM.fullmatch, literals) if match and match[1] in modules}
    for path in documents_for_users(root):
        for part, name in sorted(set(SAID.findall(path.read_text()))):
            if part in parts and name not in FILES and not {name, f"{part}.{name}"} & literals:
                yield f"{path.relative_to(root)}: no code has a counter or an event {part}.{name}"

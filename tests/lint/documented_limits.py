# SPDX-License-Identifier: Apache-2.0
"""Holds the tables of limits in the documents against the code, in both directions. Used by check_docs.py.

A table of limits has the columns `limit`, `value` and `constant`. Each constant that a row names must exist, and one of the numbers in
its value must be the constant's. A constant is one of the class before it (`LocalTree::kPathLimit`) or of the file after it;
`same` is the file of the row before. What a semicolon parts is independent. The other direction: what a contract header or the settings limit, somebody outside can meet."""
import re

from documented_pages import documents_below_docs

ROW = re.compile(r"^\|(?P<limit>[^|]*)\|(?P<value>[^|]*)\|(?P<constant>[^|]*)\|$")
HEAD = re.compile(r"^\| limit \| value \| constant \|$")
NAME = re.compile(r"`(?:(?P<owner>\w+)::)?(?P<name>k[A-Z]\w*|[a-z_]+)`")
FILE = re.compile(r"`((?:src|include)/[\w./]+)`")
NUMBER = re.compile(r"2\^(\d+)(?: - (\d+))?(?: (KiB|MiB|GiB|TiB))?|([\d,]*\d)(?: (KiB|MiB|GiB|TiB|hours?|minutes?|days?))?")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "hour": 3600, "minute": 60, "day": 86400}
DEFINED = r"\b{name}(?:\{{(?P<braced>[^;{{}}]*)\}}| = (?P<value>[^;]*)|(?P<other>\([^;]*|\{{[^;]*));"
LIMIT = re.compile(r"\bconstexpr [\w:<>]+ (k(?:\w*Limit|Most[A-Z]\w*))(?: =|\{)")
FIELD = re.compile(r"^  (?:uint64_t|size_t) (\w+_limit) = (?!0;)", re.MULTILINE)
# What a supervisor and its workers say to each other: nobody else meets these limits.
INSIDE = ("include/inductorfs/takeover/", "include/inductorfs/supervisor/", "src/config/frozen.cc")
MEANT_FOR_USERS = ("include/inductorfs/", "src/config/")


def number_of(expression):
    """The value of an expression of C++; None when it is none that can be read here."""
    plain = re.sub(r"//.*", "", expression)
    plain = re.sub(r'sizeof\("([^"]*)"\)', lambda match: str(len(match[1]) + 1), plain)
    plain = re.sub(r"\b(?:u?int\d+_t|size_t|rlim_t)\{(\d+)\}", r"\1", plain)
    plain = re.sub(r"(?<=\d)(?:'(?=\d)|U?LL?\b|U\b)", "", plain).strip()
    return eval(plain, {"__builtins__": {}}) if re.fullmatch(r"[\d\s*+()<-]+", plain) else None  # digits and operators only


def numbers_in(value):
    """Every number of a cell, with its unit and without; a time in seconds and in milliseconds."""
    found = set()
    for match in NUMBER.finditer(value):
        number = (1 << int(match[1])) - int(match[2] or 0) if match[1] else int(match[4].replace(",", ""))
        unit = UNITS.get((match[3] or match[5] or "").rstrip("s"), 1)
        found |= {number, number * unit, number * unit * 1000}
    return found


def rows_of(text):
    """(line, value, constant) of each row of each table of limits."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        match = ROW.match(line)
        inside = bool(HEAD.match(line)) or (inside and match is not None)
        if inside and not HEAD.match(line) and not re.match(r"^\|[-|]+\|$", line):
            yield number, match["value"], match["constant"]


def definitions(sources, name, owner, files):
    """The expressions by which the code defines this constant or member."""
    for file, text in sources.items():
        here = re.search(rf"\b(?:class|struct) {owner}\b", text) if owner else file in files
        for match in re.finditer(DEFINED.format(name=name), text) if here else []:
            yield match["braced"] or match["value"] or "not a number"


def check_row(sources, where, value, constant, files):
    for match in NAME.finditer(constant):
        found = list(definitions(sources, match["name"], match["owner"], files))
        if not found:
            yield f"{where}: the code defines no {match[0][1:-1]}"
            continue
        values = [number_of(expression) for expression in found]
        if None not in values and not numbers_in(value) & set(values):
            yield f"{where}: {match[0][1:-1]} is {values[0]}, not{value.rstrip()}"


def limits_of(sources):
    """(file, name) of each limit that somebody outside of this program can meet."""
    for file, text in sources.items():
        if file.startswith(MEANT_FOR_USERS) and not file.startswith(INSIDE):
            yield from ((file, name) for name in LIMIT.findall(text))
            yield from ((file, name) for name in FIELD.findall(text))


def check_limits(root):
    sources = {str(path.relative_to(root)): path.read_text(errors="replace") for folder in ("include", "src")
               for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cc")}
    said, named = "", {}
    for path in documents_below_docs(root):
        last = []
        for line, value, constant in rows_of(path.read_text()):
            for part in constant.split(";"):
                last = FILE.findall(part) or last
                files = last if re.search(r"\bsame\b", part) else FILE.findall(part)
                yield from check_row(sources, f"{path.relative_to(root)}:{line}", value, part, files)
                for match in NAME.finditer(part):
                    named.setdefault(match["name"], []).extend([None] if match["owner"] else files)
            said += constant
    for file, name in limits_of(sources):
        option = f"--{name.replace('_', '-')}`"
        if option not in said and not {file, None} & set(named.get(name, [])):
            yield f"{file}: {name} is in no table of limits below docs"

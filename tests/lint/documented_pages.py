# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/formats, docs/operations and docs/semantics: who reads them reads all. And what holds them: each is short and says below its title
for whom it is, the map (docs/README.md) leads to every document, and no cell of a table is an essay. Used by check_docs.py and
check_documented_use.py."""
import re

FOLDERS = ("formats", "operations", "semantics")
MOST_BYTES = 15 * 1024
MOST_WORDS = 30
# A title, and a paragraph below it that says for whom the page is.
BEGINNING = re.compile(r"# \S[^\n]*\n\nFor \w")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
MAP = "docs/README.md"


def pages(root, *folders):
    return [path for folder in folders or FOLDERS for path in sorted((root / "docs" / folder).rglob("*.md"))]


def without_blocks(text):
    """The text with its blocks of code blank, line by line."""
    return BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)


def text_of_pages(root, folder):
    return "\n".join(path.read_text() for path in pages(root, folder))


def documents_below_docs(root):
    """What users and operators read: not the decisions."""
    return [*sorted((root / "docs").glob("*.md")), *pages(root)]


def documents_for_users(root):
    return [root / "README.md", *documents_below_docs(root)]


def check_page(root, path):
    size = len(path.read_bytes())
    if size > MOST_BYTES:
        yield f"{path.relative_to(root)}: has {size} bytes, more than {MOST_BYTES}: divide it by subjects"
    if not BEGINNING.match(path.read_text()):
        yield f"{path.relative_to(root)}: has no paragraph below its title that says \"For ...\": for whom it is"


def cells_of(row):
    """A | in code or behind a backslash ends no cell."""
    plain = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "!"), row)
    return re.split(r"(?<!\\)\|", plain)


def check_cells(root, path):
    text = without_blocks(path.read_text())
    for table in TABLE.finditer(text):
        for number, row in enumerate(table[0].splitlines(), text.count("\n", 0, table.start()) + 1):
            for words in (len(cell.split()) for cell in cells_of(row)):
                if words > MOST_WORDS:
                    yield f"{path.relative_to(root)}:{number}: a cell of {words} words, more than {MOST_WORDS}: say the rest below the table"


def check_map(root):
    """The map leads to each document; to the decisions, which are numbered, by their folder."""
    at = root / MAP
    linked = {(at.parent / target).resolve() for target in LINK.findall(at.read_text())} if at.exists() else set()
    for path in sorted((root / "docs").rglob("*.md")):
        if path != at and (path.parent if path.parent.name == "decisions" else path) not in linked:
            yield f"{MAP}: does not lead to {path.relative_to(root)}"


def check_pages(root):
    for path in pages(root):
        yield from check_page(root, path)
    for path in [*sorted(root.glob("*.md")), *documents_below_docs(root)]:
        yield from check_cells(root, path)
    yield from check_map(root)

# SPDX-License-Identifier: Apache-2.0
"""check_docs.py finds what it is for: each case breaks one thing in a small project that is in order."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_docs  # noqa: E402

PROJECT = {
    "README.md": "# A\n[b](docs/semantics.md#errors-of-it) `src/layout/rules.cc` `kLimit` [out](https://example.org)\n",
    "docs/semantics.md": "## Errors of it\n| `kNotFound` | `not_found` | ENOENT | |\n| `kCorrupt` | `corrupt` | EIO | |\n",
    "docs/families.md": "| fxgraph | `p` |\n\n## Other\n",
    "docs/decisions/0001-a.md": "# 0001: A\n" + "\n".join(check_docs.PARTS) + " `Tree.Grows`\n",
    "docs/man/inductorfs.1": ".It Fl -store Ar DIR\n.It Fl -other | Fl -no-other\n.It Fl -json\n",
    "docs/man/inductorfs.conf.5": ".It store Ta string\n.It other Ta true\n",
    "src/config/settings.cc": 'Option{"store", Kind::kText, "DIR"},\nOption{"other", Kind::kToggle, ""},\n',
    "src/cli/status_command.cc": 'command.add_flag("--json", x)',
    "src/fuse/errno_map.cc": "case ErrorCode::kNotFound:\n  return ENOENT;\ncase ErrorCode::kCorrupt:\n  return EIO;\n",
    "docs/architecture.md": "## Threads\n| name | does |\n|---|---|\n| `seal` | x |\n\n## Other\n| `none` | x |\n",
    "src/vfs/sealer.cc": 'start_thread("seal", x);',
    "src/layout/rules.cc": 'constexpr int kLimit = 1; {.name = "fxgraph"}',
    "include/inductorfs/base/result.h": "enum class ErrorCode { kNotFound, kCorrupt };",
    "tests/a_test.cc": "TEST(Tree, Grows) {}",
}


@pytest.fixture
def project(tmp_path):
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path.resolve()


def test_a_project_in_order_has_no_offence(project):
    assert list(check_docs.check(project)) == []


@pytest.mark.parametrize("name, old, new, offence", [
    ("README.md", "docs/semantics.md#", "docs/none.md#", "there is no docs/none.md"),
    ("README.md", "#errors-of-it", "#nothing", "docs/semantics.md has no heading #nothing"),
    ("README.md", "src/layout/rules.cc", "src/layout/none.cc", "there is no src/layout/none.cc"),
    ("README.md", "kLimit", "kNone", "the code has no kNone"),
    ("README.md", "# A", "../shared", "leads out of the project"),
    ("docs/semantics.md", "ENOENT", "EIO", "no row `kNotFound`, `not_found`, ENOENT"),
    ("docs/semantics.md", "`corrupt`", "`bad`", "no row `kCorrupt`, `corrupt`, EIO"),
    ("docs/families.md", "fxgraph", "other", "src/layout/rules.cc has no family other"),
    ("src/layout/rules.cc", '{.name', '{.name = "new"}, {.name', "the family new is missing"),
    ("docs/decisions/0001-a.md", "Tree.Grows", "Tree.Shrinks", "there is no test Tree.Shrinks"),
    ("docs/decisions/0001-a.md", "**Options.**", "", "no **Options.**"),
    ("docs/man/inductorfs.1", "-no-other", "-yes", "the option --no-other is missing"),
    ("docs/man/inductorfs.1", "-json", "-jsonx", "the option --json is missing"),
    ("docs/man/inductorfs.conf.5", ".It store", ".It stored", "the key store is missing"),
    ("docs/man/inductorfs.conf.5", ".It other", ".It old Ta x\n.It other", "there is no option old"),
    ("src/vfs/sealer.cc", '"seal"', '"seals"', "the thread seals is missing"),
    ("src/vfs/sealer.cc", '"seal"', '"seals"', "no code names a thread seal"),
    ("src/config/settings.cc", "Option{", "Choice{", "no option was found; has the table another form?"),
])
def test_finds(project, name, old, new, offence):
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(line.endswith(": " + offence) for line in check_docs.check(project))

# SPDX-License-Identifier: Apache-2.0
"""check_docs.py finds what it is for: each case breaks one thing in a small project that is in order."""
import re
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
    "docs/man/inductorfs.1": ".It Fl -store Ar DIR\n.It Fl -other | Fl -no-other\n.It Fl -json\n.It Fl -most Ar N\nDefault: 8.\n",
    "docs/man/inductorfs.conf.5": ".It store Ta string\n.It other Ta true\n.It most Ta n\n.Bd\nmost = 9\n",
    "src/config/settings.cc": 'Option{"store", Kind::kText, "DIR"},\nOption{"other", Kind::kToggle, ""},\nOption{"most", Kind::kText, "N", "8",\n'
                              'constexpr uint64_t kMostThings = 2ULL << 10;\n',
    "docs/operations.md": "`--json` `inductorfs mount --store x`\n| `most` (8) |\n\n## Events of the log\n| event | level | means | do |\n"
                          "|---|---|---|---|\n| `seal.refused` | warning | a | b |\n| `fuse.library` | debug, error | a | b |\n"
                          "| `fuse.ready` | info | a | b |\n| `fuse.resumed` | info | a | b |\n| `fuse.failed` | warning | a | b |\n"
                          "| `supervisor.ended` | error | a | b |\n\n## Other\n| `none` | info | a | b |\n",
    "docs/formats.md": "| limit | value | constant |\n|---|---|---|\n| a | 1,000 bytes | `kFewLimit`, `include/inductorfs/base/result.h` |\n"
                       "| b | 2 KiB; 3 | `kMostThings`, `src/config/settings.cc`; `Sealer::kTurns` |\n",
    "tests/lint/layers.txt": "base:\nvfs: base\n# a comment\n",
    "src/cli/status_command.cc": 'command.add_flag("--json", x)',
    "src/fuse/errno_map.cc": "case ErrorCode::kNotFound:\n  return ENOENT;\ncase ErrorCode::kCorrupt:\n  return EIO;\n",
    "docs/architecture.md": "## Layers\n| `base` | x | |\n| `vfs` | x | base |\n\n## Threads\n| name | does |\n|---|---|\n"
                            "| `seal` | x |\n\n## Lock order\n`Sealer::state_`\n\n## Other\n| `none` | x |\n",
    "src/vfs/sealer.cc": 'start_thread("seal", x);\nclass Sealer {\n  static constexpr int kTurns = 3;\n  Guarded<State> state_;\n};',
    "src/vfs/refusals.cc": 'log::write_limited(log::Level::kWarning, "seal.refused", {{"path", path}, {"why", "a, b)"}});',
    "src/fuse/session.cc": 'log::write_limited(bad ? log::Level::kError : log::Level::kDebug,\n  "fuse.library", {{"text", line}});\n'
                           'log::info(resumes(a, b) ? "fuse.resumed" : "fuse.ready", {{"remote", log::redact_url("x")}});\n'
                           'log::write(level, "fuse.failed");\n',
    "src/supervisor/loop.cc": 'void log_line(const char* level);\nlog_line("error", "supervisor.ended pid=%d why=\\"a\\"", pid);\n',
    "src/layout/rules.cc": 'constexpr int kLimit = 1; {.name = "fxgraph"}',
    "include/inductorfs/base/result.h": "enum class ErrorCode { kNotFound, kCorrupt };\nconstexpr size_t kFewLimit{1'000};",
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
    ("docs/man/inductorfs.1", ".It Fl -most", ".It Fl -least Ar N\n.It Fl -most", "there is no option --least"),
    ("docs/man/inductorfs.1", "Default: 8", "Default: 9", "the default of --most is not said to be 8"),
    ("docs/operations.md", "--json", "--yaml", "there is no option --yaml"),
    ("docs/operations.md", "--store", "--stored", "there is no option --stored"),
    ("docs/operations.md", "(8)", "(9)", "the default of most is 8, not 9"),
    ("docs/man/inductorfs.conf.5", "most =", "least =", "there is no key least"),
    ("docs/formats.md", "1,000", "1,001", "kFewLimit is 1000, not 1,001 bytes"),
    ("docs/formats.md", "2 KiB", "2 MiB", "kMostThings is 2048, not 2 MiB; 3"),
    ("docs/formats.md", "kTurns", "kTurn", "the code defines no Sealer::kTurn"),
    ("docs/formats.md", "| a | 1,000 bytes | `kFewLimit`", "| a | 1,000 bytes | `kLimit`",
     "kFewLimit is in no table of limits below docs"),
    ("src/config/settings.cc", "constexpr uint64_t kMost", "constexpr uint64_t kMostNews = 1;\nconstexpr uint64_t kMost",
     "kMostNews is in no table of limits below docs"),
    ("tests/lint/layers.txt", "vfs: base", "vfs: base\nfuse: vfs", "no row for module fuse"),
    ("tests/lint/layers.txt", "vfs: base", "vfs:", "vfs may use "),
    ("docs/architecture.md", "Sealer::state_", "Sealer::turns_", "no code has a lock Sealer::turns_"),
    ("src/vfs/refusals.cc", "seal.refused", "seal.given_up", "the event seal.given_up is missing"),
    ("src/vfs/refusals.cc", "seal.refused", "seal.given_up", "no code writes the event seal.refused"),
    ("src/vfs/refusals.cc", '"seal.refused"', "event", "the name of the event is no literal"),
    ("src/vfs/refusals.cc", "kWarning", "kInfo", "the level of seal.refused is info"),
    ("src/vfs/refusals.cc", "seal.refused", "store.refused", "the event store.refused is not called fetch|recovery|seal|triton|view.lower_case"),
    ("src/fuse/session.cc", "fuse.ready", "ready", "the event ready is not called fuse.lower_case"),
    ("src/fuse/session.cc", "fuse.resumed", "fuse.Resumed", "the event fuse.Resumed is not called fuse.lower_case"),
    ("src/fuse/session.cc", "fuse.failed", "fuse.failed-", "the event fuse.failed- is not called fuse.lower_case"),
    ("src/fuse/session.cc", "kDebug", "kInfo", "the level of fuse.library is error, info"),
    ("src/supervisor/loop.cc", "supervisor.ended", "supervisor.gone", "the event supervisor.gone is missing"),
    ("src/supervisor/loop.cc", "supervisor.ended", "ended", "the event ended is not called supervisor.lower_case"),
    ("docs/operations.md", "| `seal.refused` | warning | a |", "| `seal.refused` | warning | |", "the event seal.refused is missing"),
    ("src/config/settings.cc", "Option{", "Choice{", "no option was found; has the table another form?"),
])
def test_finds(project, name, old, new, offence):
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(line.endswith(": " + offence) for line in check_docs.check(project))


def test_each_section_of_operations_is_in_its_index():
    text = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
    index = text.split("## By symptom", 1)[1].split("\n## ", 1)[0]
    anchors = {check_docs.slug(name) for name in re.findall(r"^##+ (.*)$", text, re.MULTILINE)} - {"by-symptom", "symptoms"}
    assert anchors == {target for target in re.findall(r"\]\(#([^)]+)\)", index)}

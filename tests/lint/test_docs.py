# SPDX-License-Identifier: Apache-2.0
"""check_docs.py finds what it is for: each case breaks one thing in a small project that is in order."""
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_docs  # noqa: E402

PROJECT = {
    "README.md": "# A\n[b](docs/semantics/errors.md#errors-of-it) `seal.done` `fuse.resent` `seal.refused` `supervisor.ended` `cuda.h` `src/layout/rules.cc` `kLimit` [out](https://example.org)\n",
    "docs/README.md": "# Map\n[a](semantics/errors.md) [b](semantics/more.md#more) [c](operations/options.md) [d](operations/events.md) [h](operations/commands.md)\n"
                      "[e](families.md) [f](formats.md) [i](formats/bytes.md) [g](architecture.md) [h](decisions/)\n",
    "docs/semantics/errors.md": "# Errors\n\nFor jobs.\n\n## Errors of it\n| `kNotFound` | `not_found` | ENOENT | |\n",
    "docs/semantics/more.md": "# More\n\nFor jobs.\n\n| `kCorrupt` | `corrupt` | EIO | |\n\n| limit | value | constant |\n|---|---|---|\n"
                              "| c | 3 | `Sealer::kTurns` |\n",
    "docs/families.md": "| fxgraph | `p` |\n\n## Other\n",
    "docs/decisions/0001-a.md": "# 0001: A\n" + "\n".join(check_docs.PARTS) + " `Tree.Grows`\n",
    "docs/man/inductorfs.1": ".It Fl -store Ar DIR\n.It Fl -other | Fl -no-other\n.It Fl -json\n.It Fl -most Ar N\nDefault: 8.\n"
                             ".Sh EXIT STATUS\n.It 0\n.It 3\n.Sh SEE ALSO\n",
    "include/inductorfs/cli/run.h": "inline constexpr int kExitDone = 0;\ninline constexpr int kExitKept = 3;  ///< a part\n",
    "docs/operations/commands.md": "# Commands\n\nFor scripts.\n\n## Exit status\n| 0 | x |\n| 3 | x |\n\n## Other\n| 9 | x |\n",
    "docs/man/inductorfs.conf.5": ".It store Ta string\n.It other Ta true\n.It most Ta n\n.Bd\nmost = 9\n",
    "src/config/settings.cc": 'Option{"store", Kind::kText, "DIR"},\nOption{"other", Kind::kToggle, ""},\nOption{"most", Kind::kText, "N", "8",\n'
                              'constexpr uint64_t kMostThings = 2ULL << 10;\n',
    "docs/operations/options.md": "# Options\n\nFor jobs.\n\n`--json` `inductorfs mount --store x`\n| `most` (8) |\n\n| event | level | means | do |\n"
                                  "|---|---|---|---|\n| `supervisor.ended` | error | a | b |\n\n## Other\n| `none` | info | a | b |\n",
    "docs/operations/events.md": "# Events of the log\n\nFor jobs.\n\n| event | level | means | do |\n"
                                 "|---|---|---|---|\n| `seal.refused` | warning | a | b |\n| `fuse.library` | debug, error | a | b |\n"
                                 "| `fuse.ready` | info | a | b |\n| `fuse.resumed` | info | a | b |\n| `fuse.failed` | warning | a | b |\n",
    "docs/formats.md": "| limit | value | constant |\n|---|---|---|\n| a | 1,000 bytes | `kFewLimit`, `include/inductorfs/base/result.h` |\n"
                       "| b | 2 KiB; 3 | `kMostThings`, `src/config/settings.cc`; `Sealer::kTurns` |\n",
    "docs/formats/bytes.md": "# Bytes\n\nFor readers.\n",
    "tests/lint/layers.txt": "base:\nvfs: base\n# a comment\n",
    "src/cli/status_command.cc": 'words.add("--json", x)\n  [[nodiscard]] int run(const E&) override {\n    return kExitKept;\n  }\n',
    "src/fuse/errno_map.cc": "case ErrorCode::kNotFound:\n  return ENOENT;\ncase ErrorCode::kCorrupt:\n  return EIO;\n",
    "docs/architecture.md": "## Layers\n| `base` | x | |\n| `vfs` | x | base |\n\n## Threads\n| name | does |\n|---|---|\n"
                            "| `seal` | x |\n\n## Lock order\n`Sealer::state_`\n\n## Other\n| `none` | x |\n",
    "src/vfs/sealer.cc": 'start_thread("seal", x);\nclass Sealer {\n  static constexpr int kTurns = 3;\n  Guarded<State> state_;\n};',
    "src/vfs/counts.cc": 'counters.get("seal.done"); counter_of("resent")',
    "src/vfs/refusals.cc": 'log::write_limited(log::Level::kWarning, "seal.refused", {{"path", path}, {"why", "a, b)"}});',
    "src/fuse/session.cc": 'log::write_limited(bad ? log::Level::kError : log::Level::kDebug,\n  "fuse.library", {{"text", line}});\n'
                           'log::info(resumes(a, b) ? "fuse.resumed" : "fuse.ready", {{"remote", log::redact_url("x")}});\n'
                           'log::write(level, "fuse.failed");\n',
    "src/supervisor/loop.cc": 'void log_line(const char* level);\nlog_line("error", "supervisor.ended pid=%d why=\\"a\\"", pid);\n',
    "src/layout/rules.cc": 'constexpr int kLimit = 1; {.name = "fxgraph"}',
    "include/inductorfs/base/result.h": "enum class ErrorCode { kNotFound, kCorrupt };\nconstexpr size_t kFewLimit{1'000};",
    "tests/a_test.cc": "TEST(Tree, Grows) {}",
}

NOT_FOR = 'has no paragraph below its title that says "For ...": for whom it is'


@pytest.fixture
def project(tmp_path):
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path.resolve()


def test_a_project_in_order_has_no_offence(project):
    assert list(check_docs.check(project)) == []


@pytest.mark.parametrize("name, old, new, offence", [
    ("README.md", "docs/semantics/errors.md#", "docs/none.md#", "there is no docs/none.md"),
    ("README.md", "#errors-of-it", "#nothing", "docs/semantics/errors.md has no heading #nothing"),
    ("README.md", "[b](docs/semantics/errors.md#", "[b\nof it](docs/none.md#", "there is no docs/none.md"),
    ("README.md", "# A", "# A\n```sh\n# in a block\n```\n[c](#in-a-block)", "README.md has no heading #in-a-block"),
    ("README.md", "# A", "# A\n![a chart](docs/none.svg)", "there is no docs/none.svg"),
    ("README.md", "src/layout/rules.cc", "src/layout/none.cc", "there is no src/layout/none.cc"),
    ("README.md", "kLimit", "kNone", "the code has no kNone"),
    ("README.md", "# A", "../shared", "leads out of the project"),
    ("docs/semantics/errors.md", "ENOENT", "EIO", "no row `kNotFound`, `not_found`, ENOENT"),
    ("docs/semantics/more.md", "`corrupt`", "`bad`", "no row `kCorrupt`, `corrupt`, EIO"),
    ("docs/semantics/more.md", "| 3 |", "| 4 |", "Sealer::kTurns is 3, not 4"),
    ("docs/operations/commands.md", "| 3 | x |\n", "", "no row of exit status 3"),
    ("docs/man/inductorfs.1", ".It 3\n", ".It 3\n.It 4\n", "no command has exit status 4"),
    ("docs/semantics/errors.md", "For jobs.", "For jobs. The exit status is 5.", "no command has exit status 5"),
    ("src/cli/status_command.cc", "return kExitKept", "return 3", "run() returns a number, not a kExit constant"),
    ("docs/families.md", "fxgraph", "other", "src/layout has no family other"),
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
    ("docs/operations/options.md", "--json", "--yaml", "there is no option --yaml"),
    ("docs/operations/options.md", "--store", "--stored", "there is no option --stored"),
    ("docs/operations/options.md", "(8)", "(9)", "the default of most is 8, not 9"),
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
    ("src/vfs/counts.cc", "seal.done", "seal.sealed", "no code has a counter or an event seal.done"),
    ("src/vfs/counts.cc", "resent", "sent", "no code has a counter or an event fuse.resent"),
    ("README.md", "seal.refused", "seal.gone", "no code has a counter or an event seal.gone"),
    ("src/supervisor/loop.cc", "supervisor.ended", "supervisor.gone", "the event supervisor.gone is missing"),
    ("src/supervisor/loop.cc", "supervisor.ended", "ended", "the event ended is not called supervisor.lower_case"),
    ("docs/operations/events.md", "| `seal.refused` | warning | a |", "| `seal.refused` | warning | |", "the event seal.refused is missing"),
    ("docs/operations/options.md", "| `supervisor.ended` | error | a |", "| `supervisor.ended` | error | |", "the event supervisor.ended is missing"),
    ("docs/operations/options.md", "| `supervisor", "| `fuse.ready` | info | a | b |\n| `supervisor", "docs/operations/events.md has the event fuse.ready too"),
    ("docs/operations/options.md", "`supervisor.ended` | error", "`supervisor.ended` | info", "the level of supervisor.ended is error"),
    ("docs/operations/events.md", "For jobs.\n\n", "", NOT_FOR),
    ("docs/semantics/errors.md", "For jobs.\n\n", "", NOT_FOR),
    ("docs/formats/bytes.md", "For readers.", "Of readers.", NOT_FOR),
    ("docs/semantics/more.md", "For jobs.", "- For jobs.", NOT_FOR),
    ("docs/semantics/more.md", "# More\n\n", "", NOT_FOR),
    ("docs/README.md", "[b](semantics/more.md#more)", "`semantics/more.md`", "does not lead to docs/semantics/more.md"),
    ("docs/README.md", "[f](formats.md) ", "", "does not lead to docs/formats.md"),
    ("docs/README.md", "(decisions/)", "(decisions/0001-a.md)", "does not lead to docs/decisions/0001-a.md"),
    ("src/config/settings.cc", "Option{", "Choice{", "no option was found; has the table another form?"),
])
def test_finds(project, name, old, new, offence):
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(line.endswith(": " + offence) for line in check_docs.check(project))


@pytest.mark.parametrize("name", ["docs/operations/events.md", "docs/semantics/more.md"])
def test_finds_a_long_page(project, name):
    text = (project / name).read_text()
    full = text.replace("For jobs.", "For jobs." + "x" * (15360 - len(text)))
    (project / name).write_text(full)
    assert list(check_docs.check(project)) == []
    (project / name).write_text(full.replace("x", "xx", 1))
    assert list(check_docs.check(project)) == [f"{name}: has 15361 bytes, more than 15360: divide it by subjects"]


@pytest.mark.parametrize("name", ["README.md", "docs/families.md", "docs/formats/bytes.md", "docs/operations/events.md"])
def test_finds_a_long_cell(project, name):
    """A | in code or behind a backslash ends none; a block of code is no table."""
    text = (project / name).read_text() + "\n```text\n| " + "word " * 40 + "|\n```\n\n| a | b |\n|---|---|\n| c | "
    row = "`b|c` " + "word " * 28 + "\\|"
    (project / name).write_text(text + row + " |\n")
    assert list(check_docs.check(project)) == []
    (project / name).write_text(text + "word " + row + " |\n")
    line = text.count("\n") + 1
    assert list(check_docs.check(project)) == [f"{name}:{line}: a cell of 31 words, more than 30: say the rest below the table"]


def test_each_section_of_operations_is_in_the_index_by_symptom():
    """A page by its name, but for one that has nothing before its first section; and each section below its title."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    index = (docs / "README.md").read_text().split("## Something is wrong", 1)[1].split("\n| you see", 1)[1].split("\n## ", 1)[0]
    wanted = set()
    for path in sorted((docs / "operations").rglob("*.md")):
        name, text = path.relative_to(docs).as_posix(), re.sub(r"^```.*?^```$", "```", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        begins = text.split("\n## ", 1)[0]
        wanted |= {name} if len(begins.strip().split("\n\n")) > 2 else set()
        wanted |= {f"{name}#{check_docs.slug(heading)}" for heading in re.findall(r"^##+ (.*)$", text, re.MULTILINE)}
    assert wanted == {target for target in re.findall(r"\]\(([^)]+)\)", index) if target.startswith("operations/")}

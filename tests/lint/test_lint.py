# SPDX-License-Identifier: Apache-2.0
"""The lint checks find what they are for."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_layers  # noqa: E402
import check_paths  # noqa: E402
import check_sources  # noqa: E402
import run_tidy  # noqa: E402

TABLE = "base:\nstore: base\nvfs: base store\nvfs/: tree read\n<sqlite3> = store\n<tl/> = base/result.h\n!vfs: redis\n"
GOOD = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"
SKIP = "a skip that CI would not see; use INDUCTORFS_LACKS of tests/support/lacks.h, or lack()"


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def layer_offences(root):
    return [line.split(": ", 1)[1] for line in check_layers.check(root, TABLE)]


def source_offences(root):
    return [line.split(": ", 1)[1] for line in check_sources.check(root)[0]]


@pytest.mark.parametrize("text, calls", [
    ("if (::mkdirat(disk_.fd(), place.c_str(), 0700) != 0) return;", ["mkdirat"]),
    ("const auto file = open_at(directory, path, O_RDONLY | O_NOFOLLOW);", ["open_at"]),
    ("const auto file = open_at(at.fd(), at.name(), O_RDONLY);", ["open_at"]),
    ("(void)::fstatat(at.fd(), other.name(), &status, AT_SYMLINK_NOFOLLOW);", ["fstatat"]),
    ("if (::stat(a.c_str(), &status) != 0 && ::rmdir(b.c_str()) != 0) return;", ["stat", "rmdir"]),
    ("::linkat(AT_FDCWD, proc_path(file).c_str(), directory, name, AT_SYMLINK_FOLLOW);", ["linkat"]),
    ("(void)lsetxattr(path.c_str(), name, value, size, 0);", ["lsetxattr"]),
    ("(void)remove_tree(directory + path);", ["remove_tree"]),
    ("std::filesystem::remove(path);", ["std::filesystem"]),
    ("auto text = read_file(AT_FDCWD, path, kLimit);", ["read_file"]),
])
def test_paths_finds(tmp_path, text, calls):
    write(tmp_path, "src/vfs/write/a.cc", "void f() {\n" + text + "\n}\n")
    assert [line.split(" by a path")[0] for line in check_paths.check(tmp_path)] == [f"src/vfs/write/a.cc:2: {call}" for call in calls]


@pytest.mark.parametrize("text", [
    "const auto file = open_at(at.fd(), at.name(), O_RDONLY | O_NOFOLLOW);",
    "const auto file = open_at(at->fd(), at->name(),\n  O_RDONLY | O_NOFOLLOW);",
    "auto text = read_file(AT_FDCWD, proc_path(file.get()), kLimit);",
    "(void)disk_.remove_tree(place); tree.rename(a, b); (void)::fchmod(file, 0); // ::unlink(x)",
    "auto tree = LocalTree::open(directory, owner, group, mode);",
])
def test_paths_allows(tmp_path, text):
    write(tmp_path, "src/vfs/write/a.cc", "void f() {\n" + text + "\n}\n")
    assert list(check_paths.check(tmp_path)) == []


@pytest.mark.parametrize("name, text, offence", [
    ("src/base/a.cc", '#include "inductorfs/store/s.h"', "base may not use store"),
    ("include/inductorfs/store/s.h", '#include "inductorfs/vfs/v.h"', "store may not use vfs"),
    ("src/vfs/a.cc", "#include <sqlite3.h>", "<sqlite3.h> belongs to store"),
    ("include/inductorfs/store/s.h", "#include <sqlite3.h>", "a contract header may not show <sqlite3.h>"),
    ("src/store/a.cc", "#include <tl/expected.hpp>", "<tl/expected.hpp> belongs to base/result.h"),
    ("src/vfs/a.cc", '#include "store/private.h"', "a private header of store"),
    ("src/vfs/a.cc", "auto x = redis::find();", "the word redis has no place in vfs"),
    ("src/other/a.cc", "", "other is not in layers.txt"),
    ("src/vfs/tree/a.cc", '#include "vfs/read/r.h"', "tree may not use read"),
    ("src/vfs/read/a.h", '#include "vfs/private.h"', "read may not use a header that stands above the folders"),
    ("src/vfs/other/a.cc", "", "the folder other is not in layers.txt"),
])
def test_layers_finds(tmp_path, name, text, offence):
    write(tmp_path, name, text)
    assert layer_offences(tmp_path) == [offence]


@pytest.mark.parametrize("name, text", [
    ("src/vfs/a.cc", '#include "inductorfs/store/s.h"\n#include "inductorfs/vfs/v.h"\n#include "vfs/private.h"\n#include <map>'),
    ("src/store/a.cc", "#include <sqlite3.h>"),
    ("src/vfs/read/a.cc", '#include "vfs/read/r.h"\n#include "vfs/tree/t.h"\n#include "inductorfs/vfs/v.h"'),
    ("src/vfs/a.cc", '#include "vfs/read/r.h"'),
    ("include/inductorfs/base/result.h", "#include <tl/expected.hpp>"),
    ("src/vfs/a.cc", "int x;  // as redis does"),
])
def test_layers_allows(tmp_path, name, text):
    write(tmp_path, name, text)
    assert layer_offences(tmp_path) == []


def test_layers_refuses_a_circle_in_the_table():
    layers = check_layers.read_layers("base: store\nstore: base\n")
    assert len(list(check_layers.check_table(layers.modules))) == 1


@pytest.mark.parametrize("name, text, offence", [
    ("src/a/a.cc", "int x;", "no SPDX-License-Identifier: Apache-2.0"),
    ("src/a/a.h", GOOD.splitlines()[0], "no #pragma once"),
    ("src/a/a.cc", GOOD + "std::mutex m;", "a bare lock; use Guarded<T> of base/guarded.h"),
    ("src/a/a.cc", GOOD + "// TO" + "DO later", "the word TO" + "DO"),
    ("tests/a/a.cc", GOOD + "sleep(1);", "a sleep in a test; wait for a condition with a deadline"),
    ("src/a/a.cc", GOOD + "thread.detach();", "a detached thread"),
    ("src/store/a.cc", GOOD + "if (::geteuid() == 0) return;", "the user of a process that is not who mounted; use own_uid() of base/own_user.h"),
    ("src/cli/a.cc", GOOD + 'where.value("path", "");',
     "a member of an answer that may be of another type; use text_at(), number_at() or part_of() of config/text.h"),
    ("tests/a/a.cc", GOOD + "GTEST_SKIP() << why;", SKIP),
    ("tests/a/test_a.py", LICENCE + 'pytest.skip("no torch")', SKIP),
    ("tests/a/test_a.py", LICENCE + '@pytest.mark.skipif(True)', SKIP),
    ("src/a/a.cc", GOOD + "\n" * 700, "702 lines; a source has at most 700: split it by responsibility"),
    ("src/a/a.cc", GOOD + "int f() {\n" + "  g();\n" * 59 + "}", "a function of 61 lines, more than 60: name its parts"),
    ("include/inductorfs/a/a.h", GOOD + "\n" * 300, "302 lines; a contract header has at most 300: split it by responsibility"),
    ("include/inductorfs/a/a.h", GOOD + "/// A thing.\nclass Thing {", "class Thing does not say how threads may use it"),
])
def test_sources_finds(tmp_path, name, text, offence):
    write(tmp_path, name, text)
    assert source_offences(tmp_path) == [offence]


@pytest.mark.parametrize("name, text", [
    ("include/inductorfs/base/guarded.h", GOOD + "std::mutex m;"),
    ("include/inductorfs/a/a.h", GOOD + "/// A thing. Safe for concurrent use.\nclass Thing {"),
    ("include/inductorfs/a/a.h", GOOD + "class Thing;"),
    ("src/a/a.cc", GOOD + "int f() {\n" + "  g();\n" * 58 + "}"),
    ("src/a/a.cc", GOOD + "int f() {\n}\n\nnamespace {\n" + "\n" * 60 + "}"),
    ("src/vfs/disk/inode_marks.cc", GOOD + "return status.st_uid == ::geteuid();"),
    ("src/places/a.cc", GOOD + "if (::geteuid() == 0) return;"),
    ("tests/a/a.cc", GOOD + "clock.sleep(1);"),
    ("tests/support/lacks.h", GOOD + "GTEST_SKIP() << why;"),
    ("tests/gpu/test_gpu.py", LICENCE + 'pytest.skip("no device")'),
])
def test_sources_allows(tmp_path, name, text):
    write(tmp_path, name, text)
    assert source_offences(tmp_path) == []


@pytest.mark.parametrize("first, second, offence", [
    ("struct Reply {", "class Reply {", ["Reply is the name of a type in src/a/a.h already"]),
    ("using Reply = int;", "enum class Reply { kOne };", ["Reply is the name of a type in src/a/a.h already"]),
    ("struct Reply {", "class Reply;", []),
    ("struct Outer {\n  struct Item {", "class Other {\n  struct Item {", []),
])
def test_sources_finds_a_name_that_stands_for_two_types(tmp_path, first, second, offence):
    write(tmp_path, "src/a/a.h", GOOD + first)
    write(tmp_path, "src/b/b.h", GOOD + second)
    assert source_offences(tmp_path) == offence


def tidy_key(root, command="c++ -Iinclude -Wall", what_counts=b"checks"):
    return run_tidy.key_of(root / "src/a.cc", command, root, what_counts)


def test_tidy_looks_again_at_what_has_changed_and_at_nothing_else(tmp_path):
    write(tmp_path, "src/a.cc", '#include "near.h"\n#include <vector>\n')
    write(tmp_path, "src/near.h", '#include "far.h"\n#include "not_there.h"\n')
    write(tmp_path, "include/far.h", '#include "far.h"\nint far();\n')
    write(tmp_path, "include/other.h", "int other();\n")
    keys = [tidy_key(tmp_path)]
    write(tmp_path, "include/other.h", "int another();\n")
    assert tidy_key(tmp_path) == keys[0], "nobody includes it"
    for name, text in [("include/far.h", "int farther();\n"), ("src/near.h", '#include "other.h"\n'), ("src/a.cc", "int a;\n")]:
        write(tmp_path, name, text)
        keys.append(tidy_key(tmp_path))
    keys += [tidy_key(tmp_path, "c++ -Iinclude"), tidy_key(tmp_path, what_counts=b"other checks")]
    assert len(set(keys)) == len(keys)

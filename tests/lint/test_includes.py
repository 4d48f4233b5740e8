# SPDX-License-Identifier: Apache-2.0
"""check_includes.py finds what it is for."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_includes  # noqa: E402

DEPS = """src/base/libbase.a.p/a.cc.o: #deps 2, deps mtime 1 (VALID)
    ../src/base/a.cc
    /usr/include/string

src/base/libbase.a.p/tree_b.cc.o: #deps 1, deps mtime 1 (VALID)
    ../src/base/tree/b.cc

src/vfs/libvfs.a.p/c.cc.o: #deps 1, deps mtime 1 (VALID)
    ../src/base/a.cc
tests/base/base_test.p/a.cc.o: #deps 1, deps mtime 1 (VALID)
    /usr/include/string
"""
LINES = {"../src/base/a.cc": 1_000, "/usr/include/string": 99_000, "../src/base/tree/b.cc": 20_000}
TABLE = "# a comment\nbase 60 100\nvfs 1 1\n"


def offences(table, lines=LINES):
    sizes = check_includes.sizes_of(check_includes.read_deps(DEPS), lines.get)
    return list(check_includes.check(sizes, check_includes.read_table(table)))


def test_what_is_as_planned_is_no_offence():
    assert not offences(TABLE)


@pytest.mark.parametrize(("old", "new", "wanted"), [
    ("base 60 100", "base 60 90", "base/libbase.a.p/a.cc.o has 100.0"),
    ("base 60 100", "base 54 100", "the mean source has 60.0"),
    ("base 60 100", "base 67 100", "write the table anew"),
    ("base 60 100", "base 60 112", "write the table anew"),
    ("vfs 1 1\n", "", "vfs is not in includes.txt"),
    ("vfs 1 1\n", "vfs 1 1\nfuse 1 1\n", "there is no module fuse"),
])
def test_each_offence_is_found(old, new, wanted):
    assert old in TABLE
    assert any(wanted in offence for offence in offences(TABLE.replace(old, new)))


def test_a_header_that_grows_is_found_in_each_module_that_reads_it():
    found = offences(TABLE, {**LINES, "../src/base/a.cc": 20_000})
    assert any(offence.startswith("base: ") for offence in found) and any(offence.startswith("vfs: ") for offence in found)

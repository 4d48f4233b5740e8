# SPDX-License-Identifier: Apache-2.0
"""check_fail_points.py finds what it is for."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_fail_points  # noqa: E402

PROJECT = {
    "tests/crash/manifest.txt": "# Steps\nseal.done   the file is sealed\nerror disk.write\n",
    "src/vfs/a.cc": '  fail_point("seal.done");\n',
    "src/base/fd.cc": 'if (fail_point_error("disk.write")) return;\n',
}


@pytest.fixture
def project(tmp_path):
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_project_in_order_has_no_offence(project):
    assert list(check_fail_points.check(project)) == []


@pytest.mark.parametrize("name, old, new, offence", [
    ("src/vfs/a.cc", "seal.done", "seal.other", "seal.other is not in tests/crash/manifest.txt"),
    ("src/vfs/a.cc", "seal.done", "seal.other", "the code has no seal.done"),
    ("src/vfs/a.cc", "fail_point", "other_point", "the code has no seal.done"),
    ("src/vfs/a.cc", "  fail_point", "//fail_point", "the code has no seal.done"),
    ("src/vfs/a.cc", '"seal.done"', "name", 'the name of a fail point is a text of the form "part.step"'),
    ("src/vfs/a.cc", ");\n", ');\nfail_point("seal.done");\n', "seal.done is also at src/vfs/a.cc:1"),
    ("src/base/fd.cc", "disk.write", "seal.done", "seal.done is not in tests/crash/manifest.txt"),
    ("tests/crash/manifest.txt", "   the file is sealed", "", "seal.done does not say what has been done"),
])
def test_finds(project, name, old, new, offence):
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(line.endswith(": " + offence) for line in check_fail_points.check(project))

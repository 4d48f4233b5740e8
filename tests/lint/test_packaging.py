# SPDX-License-Identifier: Apache-2.0
"""check_packaging.py finds what it is for: each case breaks one thing in the tree's own files."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_packaging  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = ["meson.build", "src/cli/meson.build", "scripts/deps", "packaging/debian/control", "packaging/debian/inductorfs.install"]


@pytest.fixture
def project(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    return tmp_path


def test_the_tree_is_in_order():
    assert list(check_packaging.check(REPOSITORY)) == []


@pytest.mark.parametrize("name, old, new, offence", [
    ("meson.build", "systemd/inductorfs@.service", "systemd/other.service", "other.service is missing"),
    ("src/cli/meson.build", "output: '_inductorfs'", "output: '_other'", "Meson installs no _inductorfs"),
    ("src/cli/meson.build", "docs/man/inductorfs.1'", "docs/man/other.1'", "Meson installs no inductorfs.1"),
    ("src/cli/meson.build", "executable('inductorfs',", "executable('other',", "other is missing"),
    ("src/cli/meson.build", "docs/man/inductorfs.1'", "docs/man/other.1'", "other.1 is missing"),
    ("packaging/debian/inductorfs.install", "usr/sbin/mount.inductorfs\n", "", "mount.inductorfs is missing"),
    ("packaging/debian/inductorfs.install", "usr/libexec/inductorfs-supervisor\n", "", "inductorfs-supervisor is missing"),
    ("packaging/debian/control", " libssl-dev,\n", "", "Build-Depends lacks libssl-dev"),
    ("scripts/deps", "libzstd-dev ", "", "the group build lacks libzstd-dev"),
])
def test_finds(project, name, old, new, offence):
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(line.endswith(": " + offence) for line in check_packaging.check(project))

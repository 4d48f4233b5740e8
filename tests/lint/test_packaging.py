# SPDX-License-Identifier: Apache-2.0
"""check_packaging.py finds what it is for: each case breaks one thing in the tree's own files."""
import re
import subprocess
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
    ("src/cli/meson.build", "completions/_inductorfs', install", "completions/_other', install", "Meson installs no _inductorfs"),
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


@pytest.mark.parametrize("unit, left_alone", [("inductorfs@var-cache-inductor.service", True), ("inductorfs@mnt-a\\x2db.service", True),
                                              ("inductorfs-metrics@7.service", False), ("redis-server.service", False)])
def test_needrestart_leaves_the_mounts_alone(unit, left_alone):
    """As needrestart does it: the file is evaluated, and the keys are patterns of names of units (its `override_rc`)."""
    program = """our %nrconf; my ($file, $unit) = @ARGV; die $@ || $! unless defined do "$file";
                 my %rules = %{$nrconf{override_rc}}; for (keys %rules) { print $rules{$_} if $unit =~ /$_/ }"""
    file = REPOSITORY / "packaging/needrestart/inductorfs.conf"
    done = subprocess.run(["perl", "-e", program, file, unit], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and done.stdout == ("0" if left_alone else ""), done


def test_updatedb_passes_over_the_type_that_mounts_have():
    subtype, = re.findall(r'kSubtype = "(\w+)"', (REPOSITORY / "src/fuse/mount.cc").read_text())
    lines = (REPOSITORY / "systemd/plocate-updatedb.service.d/prune-inductorfs.conf").read_text().splitlines()
    assert [line for line in lines if line.startswith("ExecStart=")] == [
        "ExecStart=", f'ExecStart=/usr/sbin/updatedb.plocate --add-prunefs "fuse.{subtype}"']

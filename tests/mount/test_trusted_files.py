# SPDX-License-Identifier: Apache-2.0
"""Configurations and passwords that another user could write: refused in one line. Those of Kubernetes and systemd work."""
import os
import subprocess

import pytest
from inductorfs_testing import places
from inductorfs_testing.mounts import tmpfs
from inductorfs_testing.processes import run

PROGRAM = places.program()
NOBODY = 65534
pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(name="where")
def a_directory(place):
    os.chmod(place.root, 0o755)
    directory = place.root / "etc"
    directory.mkdir(mode=0o755)
    return directory


def with_configuration(place, file):
    return run([PROGRAM, "config", "check", "--config", file], place.env(), 20)


def with_password(place, file):
    return run([PROGRAM, "nodes", "--remote", "redis://127.0.0.1:1", "--password-file", file], place.env(), 20)


def write(file, text="threads = 2\n", mode=0o644, owner=0):
    file.write_text(text)
    os.chmod(file, mode)
    os.chown(file, owner, owner)
    return file


def taken(place, file):
    done = with_configuration(place, file)
    assert done.code == 0, done.err
    done = with_password(place, file)
    assert done.code == 1 and "127.0.0.1:1" in done.err, done.err


def refused(place, file, *told):
    for done in (with_configuration(place, file), with_password(place, file)):
        assert done.code == 2 and done.err.count("\n") == 1, (done.code, done.err)
        for part in (str(file), *told):
            assert part in done.err, (part, done.err)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o644])
def test_a_file_that_only_root_may_write(place, where, mode):
    taken(place, write(where / "file", mode=mode))


@pytest.mark.parametrize(("mode", "owner", "told"), [
    (0o666, 0, "(mode 0666, owner 0, group 0): check what it says, and run chmod go-w"),
    (0o602, 0, "run chmod go-w"),
    (0o660, NOBODY, "run chown 0"),
    (0o600, NOBODY, f"(mode 0600, owner {NOBODY}, group {NOBODY}): check what it says, and run chown 0"),
])
def test_a_file_that_others_may_write(place, where, mode, owner, told):
    refused(place, write(where / "file", mode=mode, owner=owner), "others than root may write to", told)


def test_a_file_of_roots_that_a_group_may_write(place, where):
    file = write(where / "file", mode=0o660)
    os.chown(file, 0, NOBODY)
    refused(place, file, "others than root may write to")


def test_a_device_is_no_file_whose_mode_is_to_be_changed(place):
    refused(place, "/dev/null", "/dev/null is not a regular file; name a regular file")
    with open("/dev/null", encoding="ascii") as nothing:
        done = subprocess.run([PROGRAM, "config", "check", "--config", "/dev/stdin"], env=place.env(), stdin=nothing, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "/dev/stdin is not a regular file" in done.stderr and "chmod" not in done.stderr, done.stderr


def test_a_directory_that_others_may_write(place, where):
    file = write(where / "file")
    os.chmod(where, 0o777)
    refused(place, file, "others than root may replace", f"because of {where} (mode 0777, owner 0, group 0): run chmod go-w {where}")
    os.chmod(where, 0o1777)
    taken(place, file)
    os.chmod(where, 0o755)
    os.chown(where, NOBODY, NOBODY)
    refused(place, file, "others than root may replace", "move the file")
    os.chmod(where, 0o1777)
    refused(place, file, "others than root may replace", "move the file")


def test_a_link_of_another_user(place, where):
    file = write(where / "file")
    shared = place.root / "shared"
    shared.mkdir()
    os.chmod(shared, 0o1777)
    link = shared / "link"
    link.symlink_to(file)
    taken(place, link)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    refused(place, link, "is a symbolic link of the user", "name the file that it leads to")


def kubernetes(directory, mode):
    """As the kubelet lays a Secret or a ConfigMap out."""
    (directory / "..2026_11_26").mkdir()
    write(directory / "..2026_11_26/file")
    (directory / "..data").symlink_to("..2026_11_26")
    (directory / "file").symlink_to("..data/file")
    os.chmod(directory, mode)
    return directory / "file"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o3777])
def test_a_volume_of_kubernetes(place, where, mode):
    """The container's mount of it is read-only."""
    with tmpfs(where):
        file = kubernetes(where, mode)
        if mode == 0o777:
            refused(place, file, "may replace")
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)
        taken(place, file)


def test_a_credential_of_systemd(place, where):
    with tmpfs(where):
        write(where / "password", mode=0o400)
        os.chmod(where, 0o500)
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)
        taken(place, where / "password")


def test_files_of_an_ordinary_user(place, where):
    """Of root or of the user; nobody else's."""
    program = places.copy_programs(place.root)
    os.chmod(place.root.parent, 0o755)

    def check(file):
        return run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program, "config", "check", "--config", file],
                   place.env(), 20)

    assert check(write(where / "of-root")).code == 0
    assert check(write(where / "own", mode=0o600, owner=NOBODY)).code == 0
    done = check(write(where / "others", owner=1234))
    assert done.code == 2 and f"others than root and the user {NOBODY} may write to" in done.err, done.err
    done = check(write(where / "open", mode=0o606, owner=NOBODY))
    assert done.code == 2 and "chmod go-w" in done.err, done.err


def test_a_mount_with_such_a_file_is_not_made(cluster, place, where):
    file = write(where / "node.toml", mode=0o666)
    done = run([PROGRAM, "mount", place.cache, "--store", place.store, "--config", file, *cluster.options()], place.env(), 30)
    assert done.code == 2 and "others than root may write to" in done.err, done.err
    authority = write(where / "ca.pem", "none", mode=0o666)
    done = run([PROGRAM, "mount", place.cache, "--store", place.store, "--remote", "rediss://127.0.0.1:1", "--ca-file", authority,
                *cluster.options()], place.env(), 30)
    assert done.code == 2 and "cannot read the file of --ca-file" in done.err and "others than root may write to" in done.err, done.err

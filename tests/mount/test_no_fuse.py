# SPDX-License-Identifier: Apache-2.0
"""A host without FUSE, or a user without the right to mount: one line on stderr says what is missing and the remedy."""
import os
import re

import pytest
from inductorfs_testing import places
from inductorfs_testing.processes import run
from test_bad_input import mount, needs_root, not_mounted, refused


NOBODY = 65534


def in_namespace(script):
    """`before` words: runs the command in a mount namespace of its own, after the script."""
    return ["unshare", "-m", "sh", "-c", f"{script}; exec \"$@\"", "sh"]


@needs_root
def test_no_fuse_device(cluster, place):
    refused(mount(cluster, place, before=in_namespace("mount -t tmpfs tmpfs /dev; touch /dev/null")), "/dev/fuse", "modprobe fuse")
    not_mounted(place)


@needs_root
def test_no_null_device(cluster, place):
    refused(mount(cluster, place, before=in_namespace("mount -t tmpfs tmpfs /dev")), "cannot open /dev/null: it does not exist: ", "mknod")
    not_mounted(place)


@needs_root
def test_fuse_device_that_is_none(cluster, place):
    done = mount(cluster, place, before=in_namespace("mount --bind /dev/null /dev/fuse"))
    refused(done, re.escape(str(place.cache)) + "|/dev/fuse")


AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture
def nobodys(cluster):
    """A node that belongs to nobody, and the program at a place that nobody can reach."""
    os.chmod(cluster.directory, 0o755)
    node = cluster.node("nobodys", start=False)
    for path in (node.root, node.cache, node.store, node.home, node.tmp):
        os.chown(path, NOBODY, NOBODY)
    return node, places.copy_programs(cluster.directory)


def mount_as_nobody(cluster, node, program, mode, path=None):
    """With a /dev/fuse of that mode."""
    device = cluster.directory / "fuse"
    script = f"mknod {device} c 10 229; chmod {mode} {device}; mount --bind {device} /dev/fuse"
    words = [*in_namespace(script), *AS_NOBODY, "env", *([f"PATH={path}"] if path else []), program, "mount", node.cache,
             "--store", node.store, *cluster.options()]
    return run(words, node.env(USER="nobody", LOGNAME="nobody"), seconds=30)


@needs_root
@pytest.mark.parametrize("make, told", [("mknod /dev/fuse c 1 3", "it is device 1:3 instead of 10:229"), ("touch /dev/fuse", "it is no device")])
def test_fuse_device_that_is_another_device(cluster, place, make, told):
    refused(mount(cluster, place, before=in_namespace(f"mount -t tmpfs tmpfs /dev; touch /dev/null; {make}")),
            f"/dev/fuse is not the device of FUSE: {told}; ", "modprobe fuse", "--device /dev/fuse")
    not_mounted(place)


@needs_root
def test_fuse_device_without_permission(cluster, nobodys):
    refused(mount_as_nobody(cluster, *nobodys, "600"), "/dev/fuse", "(?i)chmod|permission|group")


@needs_root
def test_no_fusermount(cluster, nobodys):
    refused(mount_as_nobody(cluster, *nobodys, "666", path="/nonexistent"), "fusermount3", "fuse3|install")


@needs_root
def test_fusermount_that_may_not_be_run(cluster, nobodys):
    tools = cluster.directory / "unusable"
    tools.mkdir()
    (tools / "fusermount3").write_text("")
    (tools / "fusermount3").chmod(0o644)
    refused(mount_as_nobody(cluster, *nobodys, "666", path=tools), "fusermount3", "chmod 4755")


@needs_root
def test_mountpoint_of_somebody_else(cluster, nobodys):
    node, program = nobodys
    os.chown(node.cache, 0, 0)
    refused(mount_as_nobody(cluster, node, program, "666"), re.escape(str(node.cache)))


@needs_root
def test_root_without_the_right_to_mount(cluster, place):
    done = mount(cluster, place, before=["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
    refused(done, re.escape(str(place.cache)), "CAP_SYS_ADMIN")
    not_mounted(place)

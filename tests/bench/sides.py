# SPDX-License-Identifier: Apache-2.0
"""The three sides of comparisons of files: a directory, a FUSE file system with nothing in it, and a mount of ours with a server."""
import contextlib
import subprocess

from inductorfs_testing import compare
from inductorfs_testing.mounts import QuickCluster
from inductorfs_testing.processes import wait_until

PLAIN, BARE, OURS = "ext4", "bare FUSE", "ours"


@contextlib.contextmanager
def bare_mount(program, directory):
    """A directory that is shown by the least that a FUSE file system can be (bare_mount.cc)."""
    behind, mountpoint = directory / "behind", directory / "mountpoint"
    behind.mkdir(parents=True)
    mountpoint.mkdir()
    served = subprocess.Popen([program, behind, mountpoint])
    try:
        wait_until(lambda: compare.is_mounted(mountpoint) or served.poll() is not None, what="the bare mount")
        if served.poll() is not None:
            raise SystemExit("bench: the bare FUSE file system did not mount; is this root, and is there /dev/fuse?")
        yield mountpoint
    finally:
        subprocess.run(["umount", "-l", mountpoint], check=False)
        served.wait(20)


@contextlib.contextmanager
def three_sides(plan):
    """({side: its directory}, the mounted node). As many directories are above each of them."""
    with QuickCluster() as cluster, bare_mount(plan.program("bare_mount"), cluster.directory / "bare") as bare:
        plain = cluster.directory / "plain" / "cache"
        plain.mkdir(parents=True)
        node = cluster.quick("node")
        yield {PLAIN: plain, BARE: bare, OURS: node.cache}, node

# SPDX-License-Identifier: Apache-2.0
"""A worker that takes over serves from a disk to which nothing can be written: full to the last byte, or inode."""
import errno
import os

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.disks import Btrfs, Ext4
from inductorfs_testing.mounts import appears, suspended
from inductorfs_testing.processes import run, wait_until

FILES = 40


def fill(directory):
    """Leaves no byte and no inode for another file."""
    for size in (1 << 20, 1 << 12, 1):
        try:
            with open(directory / f"ballast {size}", "wb", buffering=0) as file:
                while file.write(b"b" * size):
                    os.fsync(file.fileno())
        except OSError as error:
            assert error.errno == errno.ENOSPC


def take_inodes(directory):
    made = 0
    try:
        while True:
            (directory / f"inode {made}").touch()
            made += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC


DISKS = {
    "ext4": (Ext4, lambda disk: fill(disk.path)),
    "ext4 inodes": (lambda path: Ext4(path, options=("-N", "600")), lambda disk: take_inodes(disk.path)),
    "btrfs": (Btrfs, lambda disk: fill(disk.path)),
}


def serves(node, files):
    for _ in range(2):
        node.next_worker(node.kill_worker(), seconds=10)
        for path, value in files.items():
            assert path.read_text() == value
        status = node.status()
        assert not status["takeover"]["safe_mode"] and status["warnings"], status
    with pytest.raises(OSError, match=r"No space"):
        for index in range(100):
            artefacts.write_atomic(node.cache, f"late/{index}", os.urandom(1 << 20))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("kind", DISKS)
def test_a_worker_is_replaced_on_a_disk_that_takes_nothing(cluster, kind):
    make, take_all = DISKS[kind]
    with make(cluster.directory / "disk") as disk:
        node = cluster.node("a", start=False)
        done = run([places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log, "--remote",
                    cluster.redis.url, *cluster.options()], node.env(), seconds=60)
        assert done.code == 0, done.err
        other = cluster.node("b", options=cluster.options())
        private = {artefacts.write_atomic(node.cache, f"own/{index}", f"mine {index}"): f"mine {index}" for index in range(FILES)}
        with suspended(cluster.redis):  # what is published may be evicted for who writes
            own = {artefacts.write_graph(node.cache, f"key {index}", f"value {index}"): f"value {index}" for index in range(FILES)}
            wait_until(lambda: node.status()["file_system"]["unsealed"] == 0, what="all to be queued")
            os.sync()
            take_all(disk)
            serves(node, {**own, **private})
        for name in os.listdir(disk.path):
            if name.startswith(("ballast", "inode")):
                (disk.path / name).unlink()
        node.sync()
        for path in own:
            assert appears(other.cache / path.relative_to(node.cache)).read_text() == own[path]
        late = artefacts.write_graph(node.cache, "late", "came later")
        node.sync()
        wait_until(lambda: (other.cache / late.relative_to(node.cache)).exists(), 15, "what was written when there was room")
        node.unmount()
        sound = run([places.program(), "check", "--store", disk.path / "store"])
        assert sound.code == 0, sound.out + sound.err

# SPDX-License-Identifier: Apache-2.0
"""A worker that takes over serves from a disk to which nothing can be written: full to the last byte, or inode."""
import errno
import os

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.disks import Btrfs, Ext4, Limited, Xfs, fill, give_back, take_inodes
from inductorfs_testing.mounts import appears, suspended
from inductorfs_testing.node import elapsed
from inductorfs_testing.processes import PATIENCE, run, wait_until

FILES = 40

DISKS = {
    "ext4": (Ext4, lambda disk: fill(disk.path)),
    "ext4 inodes": (lambda path: Ext4(path, options=("-N", "600")), lambda disk: take_inodes(disk.path)),
    "btrfs": (Btrfs, lambda disk: fill(disk.path)),
    "xfs": (Xfs, lambda disk: fill(disk.path)),
}
# A quota shows in no statvfs(2).
BEGINNINGS = {**{kind: DISKS[kind] for kind in ("ext4", "ext4 inodes", "xfs")},
              "btrfs quota": (lambda path: Limited(path, 60), lambda disk: fill(disk.path / "store"))}


def refuses_an_upgrade(node):
    before = node.status()["pid"]
    seconds, done = elapsed(node.cli, "upgrade", node.cache)
    assert done.code == 1 and "takes no writes" in done.err and "goes on serving" in done.err, done
    assert seconds < 10 * PATIENCE and node.status()["pid"] == before, node.log_tail()


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
            refuses_an_upgrade(node)
            serves(node, {**own, **private})
        give_back(disk.path)
        node.sync()
        for path in own:
            assert appears(other.cache / path.relative_to(node.cache)).read_text() == own[path]
        late = artefacts.write_graph(node.cache, "late", "came later")
        node.sync()
        wait_until(lambda: (other.cache / late.relative_to(node.cache)).exists(), 15, "what was written when there was room")
        node.unmount()
        sound = run([places.program(), "check", "--store", disk.path / "store"])
        assert sound.code == 0, sound.out + sound.err


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("end", ["kill_daemon", "unmount"])
@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_mount_begins_on_a_full_disk_with_what_the_one_before_has_kept_for_it(cluster, kind, end):
    make, take_all = BEGINNINGS[kind]
    with make(cluster.directory / "disk") as disk:
        node = cluster.node("a", start=False)
        mount = [places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log, "--remote", cluster.redis.url,
                 *cluster.options()]
        assert run(mount, node.env(), seconds=60).code == 0
        # What is published may be evicted for who fills the disk.
        made = {artefacts.write_atomic(node.cache, f"own/{index}", f"mine {index}"): f"mine {index}" for index in range(FILES)}
        wait_until((disk.path / "store/reserve").exists, 20, "the reserve")
        take_all(disk)
        getattr(node, end)()
        take_all(disk)  # what a clean end has given back, the catalog's log and its index among it
        done = run(mount, node.env(), seconds=60)
        assert done.code == 0, done.err
        for path, value in made.items():
            assert path.read_text() == value
        node.unmount()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("end", ["kill_daemon", "unmount"])
def test_a_mount_that_a_quota_leaves_no_room_is_refused_with_that_reason(cluster, end):
    with Limited(cluster.directory / "disk", 24) as disk:
        node = cluster.node("a", start=False)
        mount = [places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log, *cluster.options()]
        assert run(mount, node.env(), seconds=60).code == 0
        made = artefacts.write_atomic(node.cache, "own/file", "mine")
        wait_until((disk.path / "store/reserve").exists, 20, "the reserve")
        getattr(node, end)()
        for reserve in (disk.path / "store").glob("reserve*"):
            reserve.unlink()
        fill(disk.path / "store")
        done = run(mount, node.env(), seconds=60)
        assert done.code == 1 and "quota" in done.err and str(disk.path / "store") in done.err, done
        give_back(disk.path / "store")
        assert run(mount, node.env(), seconds=60).code == 0
        assert made.read_text() == "mine"
        node.unmount()


@pytest.mark.usefixtures("root")
def test_a_worker_is_replaced_on_a_disk_that_has_turned_read_only(cluster):
    with Ext4(cluster.directory / "disk") as disk:
        node = cluster.node("a", start=False)
        done = run([places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log, "--remote", cluster.redis.url,
                    *cluster.options()], node.env(), seconds=60)
        assert done.code == 0, done.err
        other = cluster.node("b", options=cluster.options())
        theirs = artefacts.write_graph(other.cache, "theirs", "of the cluster")
        other.sync()
        shared = appears(node.cache / theirs.relative_to(other.cache))
        assert shared.read_text() == "of the cluster"
        own = {artefacts.write_atomic(node.cache, f"own/{index}", f"mine {index}"): f"mine {index}" for index in range(FILES)}
        own[artefacts.write_graph(node.cache, "published", "by this node")] = "by this node"
        node.sync()
        with suspended(cluster.redis):
            queued = artefacts.write_graph(node.cache, "queued", "not published yet")
            wait_until(lambda: node.status()["file_system"]["unsealed"] == 0, what="all to be queued")
            os.sync()
            disk.turn_read_only()
            refuses_an_upgrade(node)
            node.next_worker(node.kill_worker(), seconds=10)
        for path, value in {**own, queued: "not published yet", shared: "of the cluster"}.items():
            assert path.read_text() == value
        assert appears(other.cache / queued.relative_to(node.cache)).read_text() == "not published yet"
        late = artefacts.write_graph(other.cache, "late", "of the cluster, too")
        other.sync()
        node.next_worker(node.kill_worker(), seconds=10)
        for path, value in {**own, shared: "of the cluster"}.items():
            assert path.read_text() == value
        status = node.status()
        assert not status["takeover"]["safe_mode"] and any("cannot be written to" in warning for warning in status["warnings"]), status["warnings"]
        with pytest.raises(OSError, match=r"Read-only|No space") as refused:
            artefacts.write_atomic(node.cache, "own/more", "more")
        assert refused.value.errno in (errno.EROFS, errno.ENOSPC)
        with pytest.raises(FileNotFoundError):
            (node.cache / late.relative_to(other.cache)).read_text()
        assert not (node.cache / "never seen").exists(), "a compiler goes on as if there were no cache"
        done = node.cli("sync", node.cache)
        assert done.code == 1 and "cannot be written to" in done.err, done
        assert node.cli("unmount", node.cache, "--lazy").code == 0


@pytest.mark.usefixtures("root")
def test_no_worker_takes_over_on_a_disk_that_is_dead_and_that_is_no_crash(cluster):
    with Ext4(cluster.directory / "disk") as disk:
        node = cluster.node("a", start=False)
        done = run([places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log, *cluster.options()], node.env(),
                   seconds=60)
        assert done.code == 0, done.err
        artefacts.write_atomic(node.cache, "own/file", "mine")
        disk.die()
        refuses_an_upgrade(node)
        node.kill_worker()
        wait_until(lambda: "supervisor.responding" in node.log.read_text(), 30, "the supervisor to answer")
        done = node.cli("status", node.cache)
        assert done.code == 1 and "this host's disk is out of order" in done.err, done
        assert "supervisor.safe_mode" not in node.log.read_text()
        assert not (node.cache / "never seen").exists(), "a compiler goes on as if there were no cache"
        assert node.cli("unmount", node.cache, "--lazy").code == 0

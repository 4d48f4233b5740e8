# SPDX-License-Identifier: Apache-2.0
"""A thread that answers no request and hangs: it is named, and neither `sync` nor `unmount` waits for it for ever."""
import os

import pytest
from inductorfs_testing import artefacts, compare, mounts
from inductorfs_testing.hung_files import open_hangs
from inductorfs_testing.mounts import appears, remount
from inductorfs_testing.processes import wait_until
from inductorfs_testing.takeovers import takeover


def begin_build(node):
    """A library whose build has not ended: its path in the mount, on the disk, and that of the build's directory."""
    final = node.cache / artefacts.code("library", ".so")
    final.parent.mkdir()
    build = final.with_name(final.stem + "_CxxBuild")
    build.mkdir()
    final.write_bytes(b"library")
    return final, node.store / "files" / "view" / final.relative_to(node.cache), build


def test_a_fifo_in_the_place_of_a_file_holds_up_no_thread(cluster):
    """A program of the host may put one there between a look and the open(2) that follows."""
    a = cluster.quick("a", "--hang-timeout", "5")
    _, on_disk, build = begin_build(a)
    on_disk.unlink()
    os.mkfifo(on_disk)
    build.rmdir()
    code = artefacts.write_atomic(a.cache, artefacts.code("code"), "print()\n").relative_to(a.cache)
    a.sync()
    assert mounts.published(cluster) == [str(code)]
    assert any("is not a regular file" in line for line in a.status()["file_system"]["refused"]), a.status()["file_system"]
    a.unmount()


@pytest.mark.usefixtures("root")
def test_a_thread_that_hangs_is_named_and_holds_up_no_end(cluster):
    """A disk that never answers its open(2)."""
    a, b = cluster.quick("a", "--hang-timeout", "5"), cluster.quick("b")
    final, on_disk, build = begin_build(a)
    with open_hangs(on_disk, cluster.directory / "disk", a.worker()):
        code = hangs_and_ends(a, b, final, build)
    remount(a, cluster)
    a.sync()
    appears(b.cache / code)
    assert mounts.published(cluster) == [str(code)]


def hangs_and_ends(a, b, final, build):
    worker = a.worker()
    build.rmdir()
    code = artefacts.write_atomic(a.cache, artefacts.code("code"), "print()\n").relative_to(a.cache)

    synced = a.cli("sync", a.cache, "--timeout", "60", seconds=60)
    assert synced.code == 1 and synced.seconds < 40, synced
    assert "the thread seal has made no progress for" in synced.err and str(final.relative_to(a.cache)) in synced.err
    (warning,) = [text for text in a.status()["warnings"] if "the thread seal" in text]
    assert "inductorfs upgrade" in warning and "mount.thread_stuck" in a.log.read_text()
    # Jobs do not need that thread, so nothing is taken from them.
    assert (a.cache / code).read_text() == "print()\n" and not (b.cache / code).exists()
    assert a.worker() == worker and takeover(a)["restarts"] == 0

    ended = a.cli("unmount", a.cache, seconds=40)
    assert ended.code == 1 and "the mount is gone" in ended.err and "the thread seal" in ended.err, ended
    assert not compare.is_mounted(a.cache)
    wait_until(lambda: not a.processes(), what="the daemon's end")
    assert "mount.ended_without_thread" in a.log.read_text()
    return code

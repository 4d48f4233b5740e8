# SPDX-License-Identifier: Apache-2.0
"""A thread that answers no request and hangs: it is named, and neither `sync` nor `unmount` waits for it for ever."""
import os

from inductorfs_testing import artefacts, compare, mounts
from inductorfs_testing.mounts import appears, remount
from inductorfs_testing.processes import wait_until
from inductorfs_testing.takeovers import takeover


def test_a_thread_that_hangs_is_named_and_holds_up_no_end(cluster):
    """Its open(2) of a pipe without another end stands for a disk that never answers, and for a mistake of ours."""
    a, b = cluster.quick("a", "--hang-timeout", "5"), cluster.quick("b")
    final = a.cache / artefacts.code("library", ".so")
    final.parent.mkdir()
    build = final.with_name(final.stem + "_CxxBuild")
    build.mkdir()
    final.write_bytes(b"library")
    on_disk = a.store / "files" / "view" / final.relative_to(a.cache)
    on_disk.unlink()
    os.mkfifo(on_disk)
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
    remount(a, cluster)
    a.sync()
    appears(b.cache / code)
    assert mounts.published(cluster) == [str(code)]

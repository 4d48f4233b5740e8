# SPDX-License-Identifier: Apache-2.0
"""The directory of --store is renamed, replaced or removed under a mount, and the worker is replaced: the next one serves the store that the
mount has, or says why it cannot."""
import os
import re
import shutil
import subprocess

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.disks import Ramfs
from inductorfs_testing.faulty_store import FaultyDisk
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import run, wait_until


def test_a_worker_serves_the_store_that_was_renamed_and_replaced(cluster):
    a, b = (cluster.node(name, options=cluster.options()) for name in "ab")
    private = artefacts.write_atomic(a.cache, "own/file", "private")
    made = artefacts.write_graph(a.cache, "key", "value")
    a.sync()
    moved = a.store.with_name("moved")
    os.rename(a.store, moved)
    assert any(f"is {moved} now" in warning for warning in a.status()["warnings"])
    a.sync()
    a.store.mkdir()
    a.next_worker(a.kill_worker(), seconds=20)
    assert private.read_text() == "private" and made.read_text() == "value"
    assert os.listdir(a.store) == [], "another store was begun"
    status = a.status()
    assert status["store"]["directory"] == str(moved) and not status["takeover"]["safe_mode"], status["store"]
    late = artefacts.write_graph(a.cache, "late", "came later")
    a.sync()
    assert appears(b.cache / late.relative_to(a.cache)).read_text() == "came later"


def remove_used(store):
    """Its mount goes on writing into it."""
    def is_gone():
        shutil.rmtree(store, ignore_errors=True)
        return not store.exists()
    wait_until(is_gone, what="the end of the store")


def test_a_mount_whose_store_was_removed_says_so_until_it_is_mounted_anew(cluster):
    a = cluster.node("a", options=cluster.options())
    made = artefacts.write_graph(a.cache, "key", "value")
    a.sync()
    remove_used(a.store)
    done = a.cli("sync", a.cache)
    assert done.code != 0 and "was removed or replaced under the mount" in done.err, done
    worker = a.kill_worker()
    wait_until(lambda: "supervisor.responding" in a.log.read_text(), 30, "the supervisor to answer")
    done = a.cli("status", a.cache)
    assert done.code == 1 and "no program can serve this mount now" in done.err, done
    with pytest.raises(OSError, match="No such file|Input/output"):
        made.read_text()
    assert not a.store.exists()
    log = a.log.read_text()
    assert "removed or replaced under the mount" in log and "supervisor.safe_mode" not in log
    assert f"pid={worker} " in log
    assert a.cli("unmount", a.cache, "--lazy").code == 0
    a.start(*cluster.options())
    assert appears(made).read_text() == "value"


def test_the_advice_for_a_damaged_format_file_loses_nothing(cluster):
    a = cluster.node("a", options=cluster.options())
    private = artefacts.write_atomic(a.cache, "own/file", "private")
    a.unmount()
    os.truncate(a.store / "format", 0)
    done = a.cli("mount", a.cache, "--store", a.store, "--log", a.log, *cluster.options())
    assert done.code == 2 and "is damaged" in done.err, done
    subprocess.run(re.search(r"\((echo .*?)\)", done.err)[1], shell=True, check=True)
    a.start(*cluster.options())
    assert private.read_text() == "private"


@pytest.mark.usefixtures("root")
def test_a_store_that_cannot_keep_what_jobs_make_is_refused(cluster):
    with FaultyDisk(cluster.directory / "disk", "--no-attributes") as disk:
        a = cluster.node("a", start=False)
        done = run([places.program(), "mount", a.cache, "--store", disk.path / "store", "--log", a.log, *cluster.options()], a.env(), seconds=60)
        assert done.code == 2 and "keeps no extended attributes" in done.err and "name a directory on" in done.err, done
        assert not os.path.ismount(a.cache) and os.listdir(disk.path) == [], "nothing is made there"
        done = a.cli("doctor", "--store", disk.path / "store")
        assert "keeps no extended attributes" in done.out + done.err, done


@pytest.mark.usefixtures("root")
def test_a_store_in_memory_without_extended_attributes_is_refused(cluster):
    """ramfs keeps none, on every kernel; tmpfs does from Linux 6.6 on."""
    with Ramfs(cluster.directory / "disk") as disk:
        a = cluster.node("a", start=False)
        done = run([places.program(), "mount", a.cache, "--store", disk.path / "store", "--log", a.log, *cluster.options()], a.env(), seconds=60)
        assert done.code == 2 and "keeps no extended attributes" in done.err, done
        assert not os.path.ismount(a.cache) and os.listdir(disk.path) == [], "nothing is made there"

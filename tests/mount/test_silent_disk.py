# SPDX-License-Identifier: Apache-2.0
"""A disk below the store that answers no call: who asks is told so, and the mount can be taken away."""
import contextlib
import json
import os
import subprocess

import pytest
from inductorfs_testing import artefacts, compare
from inductorfs_testing.faulty_store import FaultyDisk
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import PATIENCE, wait_until
from inductorfs_testing.takeovers import takeover

pytestmark = pytest.mark.usefixtures("root")

SILENT = "the disk of --store has not answered since"
HELD = "its worker hung and was killed, and the kernel keeps it"
QUESTIONS = (("status",), ("sync", "--timeout", "1"), ("explain",), ("stats",), ("upgrade",))


def mount(node, cluster, disk, *options):
    """Its log lies in the store unless another place is named."""
    done = node.cli("mount", node.cache, "--store", disk.path / "store", "--remote", cluster.redis.url, *cluster.options("--hang-timeout", "5"), *options)
    assert done.code == 0, done


@contextlib.contextmanager
def job_that_waits(node):
    """It looks up a name that the kernel does not know."""
    job = subprocess.Popen(["stat", node.cache / "own" / "never seen"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        job.kill()
        job.wait(20 * PATIENCE)


def ask(node, question):
    verb, *options = question
    done = node.cli(verb, node.cache, *options)
    assert done.seconds < 9 * PATIENCE, done
    return done


def test_whoever_asks_is_told_of_a_disk_that_is_silent(cluster):
    a, b = cluster.node("a", start=False), cluster.quick("b")
    with FaultyDisk(cluster.directory / "disk") as disk:
        mount(a, cluster, disk, "--log", a.log)
        worker = a.worker()
        artefacts.write_graph(a.cache, "key", "value")
        a.sync()
        before = a.status()
        with disk.silent():
            for _ in range(2):
                done = ask(a, ("status", "--json"))
                assert done.code == 0 and SILENT in done.out and "inductorfs unmount" in done.out, done
            (told,) = (one for one in json.loads(a.cli("doctor", a.cache, "--json").out) if SILENT in one["what"])
            assert told["remedy"].startswith("look at that disk"), told
            assert a.status()["catalog"]["entries"] == before["catalog"]["entries"], "the numbers of before"
            for question in (("sync", "--timeout", "1"), ("explain",), ("upgrade",)):
                done = ask(a, question)
                assert done.code == 1 and SILENT in done.err, done
            assert ask(a, ("stats",)).code == 0
            told = ask(a, ("doctor",)).out
            assert "-> look at that disk" in told, told
        wait_until(lambda: not any(SILENT in warning for warning in a.status()["warnings"]), what="the disk to be back")
        late = artefacts.write_graph(a.cache, "late", "late").relative_to(a.cache)
        a.sync()
        appears(b.cache / late)
        assert a.worker() == worker and takeover(a)["restarts"] == 0
        a.unmount()


def holds_the_worker(node):
    """Until the supervisor answers in its place; the one that was killed."""
    worker = node.worker()
    # What the worker had taken before it was killed nobody answers: that command gives up by itself.
    told = wait_until(lambda: HELD in (done := node.cli("status", node.cache)).err and done, 60, "the supervisor to answer")
    assert told.seconds < 9 * PATIENCE and told.code == 1 and f"(pid {worker})" in told.err and "disk of --store" in told.err, told
    return worker


def test_a_killed_worker_that_the_kernel_keeps_is_told_of_and_followed(cluster):
    a, b = cluster.node("a", start=False), cluster.quick("b")
    with FaultyDisk(cluster.directory / "disk") as disk:
        mount(a, cluster, disk)
        own = artefacts.write_atomic(a.cache, "own/file", "mine")
        with job_that_waits(a):
            with disk.silent():
                worker = holds_the_worker(a)
                for question in QUESTIONS:
                    done = ask(a, question)
                    assert done.code == 1 and HELD in done.err, done
                assert compare.is_mounted(a.cache)
            a.next_worker(worker)
        assert own.read_text() == "mine" and takeover(a)["restarts"] == 1
        wait_until(lambda: "supervisor.worker_held" in (disk.path / "store" / "log").read_text(), what="the line of the log")
        late = artefacts.write_graph(a.cache, "late", "late").relative_to(a.cache)
        a.sync()
        appears(b.cache / late)
        a.unmount()


@pytest.mark.parametrize("options", [(), ("--lazy",)])
def test_the_mount_of_a_worker_that_the_kernel_keeps_can_be_taken_away(cluster, options):
    a = cluster.node("a", start=False)
    with FaultyDisk(cluster.directory / "disk") as disk:
        mount(a, cluster, disk)
        artefacts.write_atomic(a.cache, "own/file", "mine")
        with job_that_waits(a), disk.silent():
            worker = holds_the_worker(a)
            ended = a.cli("unmount", a.cache, *options)
            assert ended.code == 1 and ended.seconds < 10 * PATIENCE, ended
            (line,) = ended.err.splitlines()
            assert "the mount is gone" in line and f"(pid {worker})" in line, ended
            assert not compare.is_mounted(a.cache) and os.listdir(a.cache) == []
        wait_until(lambda: not a.processes(), 30, "the end of what served the mount")
        mount(a, cluster, disk)
        assert (a.cache / "own/file").read_text() == "mine"
        a.unmount()


def test_a_stop_does_not_wait_for_a_worker_that_the_kernel_keeps(cluster):
    a = cluster.node("a", start=False)
    with FaultyDisk(cluster.directory / "disk") as disk:
        mount(a, cluster, disk)
        (a.cache / "own").mkdir()
        with job_that_waits(a), disk.silent():
            holds_the_worker(a)
            (supervisor,) = a.supervisors()
            os.kill(supervisor, 15)
            wait_until(lambda: not compare.is_mounted(a.cache), 20, "the mount to go")
        wait_until(lambda: not a.processes(), 30, "the end of what served the mount")

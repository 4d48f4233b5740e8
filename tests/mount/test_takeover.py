# SPDX-License-Identifier: Apache-2.0
"""A worker that is killed or hangs: no process notices."""
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import random
import re
import select
import signal
import socket
import sqlite3
import time
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, compare, mounts, places
from inductorfs_testing.load import Load
from inductorfs_testing.node import holds_files
from inductorfs_testing.processes import SANITIZER, Job, wait_until
from inductorfs_testing.takeovers import healthy, in_use, no_errors, nothing_is_left, takeover

PROGRAM = places.program()
# Without FUSE_NOTIFY_RESEND, as on a kernel before 6.9.
RESEND = {"resend": {}, "no resend": {"INDUCTORFS_FAIL_POINT": "fuse.resend=EIO"}}


def socket_of(node):
    name = hashlib.sha256(str(node.cache).encode()).hexdigest()[:16] + ".sock"
    (path,) = [path for path in (Path("/run/inductorfs") / name, Path(f"/tmp/inductorfs-{os.geteuid()}") / name) if path.exists()]
    return path


# ---- crashes

@pytest.mark.parametrize("resend", RESEND)
def test_fifty_kills_under_load_are_not_noticed(cluster, tmp_path, resend):
    node, chance = cluster.quick("a", "--crash-limit", "0", environment=RESEND[resend]), random.Random(1)
    with Load(node.cache, tmp_path / "load") as load:
        load.advance(200)
        for index in range(50):
            killed = node.kill_worker()
            healthy(node, killed)
            load.advance(chance.randrange(1, 60))
            told = takeover(node)
            assert told["restarts"] == index + 1 and told["last_end"] == "signal 9" and told["safe_mode"] is False
        results = no_errors(load)
    assert all(result["operations"] > 1000 for result in results)
    node.unmount()
    nothing_is_left(node)


@pytest.mark.parametrize("resend", RESEND)
def test_a_lookup_that_waits_for_the_cluster_outlives_its_worker(cluster, resend):
    """From its slot. Where the kernel can, it sends the lookup once more, which must do no harm."""
    a, b = cluster.quick("a"), cluster.quick("b", "--crash-limit", "0", "--prefetch", "0", "--lookup-patience", "30000",
                                             environment=RESEND[resend])
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.sync()
    b.catch_up(a)
    os.stat((b.cache / name).parent)
    before = b.counters()["fuse.lookup"]
    with mounts.suspended(cluster.redis):
        job = Job(["cat", b.cache / name], b.env(), b.root / "jobs", "cat")
        wait_until(lambda: b.counters()["fuse.lookup"] > before, what="the lookup")
        healthy(b, b.kill_worker())
        wait_until(lambda: b.counters()["fuse.resumed"] == 1, what="the lookup in the next worker")
        wait_until(lambda: resend != "resend" or b.counters()["fuse.resent"] == 1, what="the lookup from the kernel")
    done = job.wait(30)
    assert (done.code, done.out, done.err) == (0, "value", "")
    assert b.counters()["fuse.resent"] == (resend == "resend")


def sleeps_in_the_kernel(pid):
    """One of its threads: the others go on."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return "D" in states


def is_on_disk(node, name):
    """Whether a worker that starts without the cluster knows this entry."""
    with contextlib.closing(sqlite3.connect(f"file:{node.store / 'catalog.sqlite'}?mode=ro", uri=True)) as catalog:
        return catalog.execute("SELECT count(*) FROM entries WHERE path = ?", (os.fsencode(name),)).fetchone() == (1,)


@contextlib.contextmanager
def held_up_messenger(cluster):
    """A node, an artefact that it lacks, a job that waits for it with the lock of its directory, and the messenger that the kernel
    has wait for that lock."""
    writer, node = cluster.quick("a"), cluster.quick("b", "--crash-limit", "0", "--prefetch", "0", "--lookup-patience", "30000")
    name = artefacts.write_graph(writer.cache, "k", "value").relative_to(writer.cache)
    writer.sync()
    node.catch_up(writer)
    wait_until(lambda: is_on_disk(node, name), what="the entry for the next worker")
    os.stat((node.cache / name).parent)
    before = node.counters()["fuse.lookup"]
    (messenger,) = node.messengers()
    with mounts.suspended(cluster.redis):
        job = Job(["cat", node.cache / name], node.env(), node.root / "jobs", "cat")
        wait_until(lambda: node.counters()["fuse.lookup"] > before, what="the lookup")
        node.next_worker(node.kill_worker())  # it tells the kernel of all names that the kernel may not know
        wait_until(lambda: sleeps_in_the_kernel(messenger), what="the notice of a name in that directory")
        yield node, node.cache / name, job, messenger


def test_a_worker_dies_although_the_kernel_cannot_be_told_anything(cluster):
    """A lookup that waits holds the lock of its directory, and the kernel forgets a name there only with that lock. Nothing
    ends this wait: a worker in it would not die when it is killed, and never be replaced."""
    with held_up_messenger(cluster) as (node, _, job, messenger):
        for _ in range(2):
            healthy(node, node.kill_worker())
    done = job.wait(30)
    assert (done.code, done.out, done.err) == (0, "value", "")
    wait_until(lambda: not sleeps_in_the_kernel(messenger), what="the messenger")
    assert not (node.cache / "never").exists()
    node.unmount()
    nothing_is_left(node)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("remedy", ["mount", "unmount"])
def test_all_processes_may_be_killed_while_the_messenger_is_held_up(cluster, remedy):
    """It keeps the device open, so that the kernel does not see that the daemon is gone."""
    with held_up_messenger(cluster) as (node, path, job, messenger):
        for pid in node.processes():
            os.kill(pid, signal.SIGKILL)
        assert sleeps_in_the_kernel(messenger)
        if remedy == "mount":
            node.start(*cluster.options())  # at once, while those who were killed still close their files
        else:
            assert node.cli("unmount", node.cache, "--lazy").code == 0
        done = job.wait(30)
    assert done.code == 1 and "value" not in done.out
    if remedy == "mount":
        wait_until(path.exists, what="the artefact")
        assert path.read_text() == "value"
        node.unmount()
    nothing_is_left(node)


def test_who_was_killed_and_still_closes_its_files_serves_nothing(cluster):
    """Its control socket is listened at until the last of them is closed: whoever asks then gets no answer, and the mount is
    replaced all the same."""
    node = cluster.quick("b")
    path = socket_of(node)
    for pid in node.processes():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(holds_files, node.processes())), what="the daemon's end")
    path.unlink(missing_ok=True)  # a mount of another test may have swept it: nobody listens there
    with socket.socket(socket.AF_UNIX) as closing, concurrent.futures.ThreadPoolExecutor(1) as starter:
        closing.bind(str(path))
        closing.listen()
        started = starter.submit(node.start, *cluster.options())
        asked, _, _ = select.select([closing], [], [], 20)
        closing.close()  # of what was asked nothing is answered
        started.result(30)
    assert asked
    (node.cache / "mark").write_text("served")
    node.unmount()
    nothing_is_left(node)


def dies(pid):
    wait_until(lambda: not holds_files(pid), 20, f"the end of {pid}")


@pytest.mark.usefixtures("root")
def test_a_worker_that_nothing_is_left_of_can_be_killed(cluster, tmp_path):
    """Supervisor and messenger were killed: the worker must not tell the kernel itself, because a job's lookup may hold up who
    does, and a worker that is killed in that moment would never die."""
    facts = artefacts.fingerprint(tmp_path / "facts.json")
    writer = cluster.quick("a")
    patient = cluster.options("--crash-limit", "0", "--prefetch", "0", "--lookup-patience", "30000")
    node = cluster.node("b", options=["--fingerprint", facts, *patient[2:]])
    name = artefacts.write_graph(writer.cache, "k", "value").relative_to(writer.cache)
    writer.sync()
    node.catch_up(writer)
    os.stat((node.cache / name).parent)
    before, worker = node.counters()["fuse.lookup"], node.worker()
    gone = node.supervisors() + node.messengers()
    for pid in gone:
        os.kill(pid, signal.SIGKILL)
    for pid in gone:
        dies(pid)
    with mounts.suspended(cluster.redis):
        job = Job(["cat", node.cache / name], node.env(), node.root / "jobs", "cat")
        wait_until(lambda: node.counters()["fuse.lookup"] > before, what="the lookup")
        artefacts.fingerprint(facts, torch="another")
        os.kill(worker, signal.SIGHUP)
        wait_until(lambda: node.messengers() and sleeps_in_the_kernel(node.messengers()[0]), what="the notice of a name there")
        os.kill(worker, signal.SIGKILL)
        dies(worker)
    assert node.cli("unmount", node.cache, "--lazy").code == 0
    job.wait(30)
    nothing_is_left(node)


def test_a_messenger_that_is_killed_is_replaced(cluster, node):
    other = cluster.quick("b")
    (killed,) = node.messengers()
    for index in range(2):
        name = artefacts.graph(f"k {index}", "value")
        assert not (node.cache / name).exists()  # which the kernel keeps until it is told
        artefacts.write_graph(other.cache, f"k {index}", "value")
        mounts.appears(node.cache / name)
        if index == 0:
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: node.messengers() not in ([], [killed]), what="the next messenger")
    assert takeover(node)["restarts"] == 0


def test_what_was_written_before_and_after_a_kill_reaches_the_cluster(cluster, node, load):
    names = []
    for index in range(6):
        names.append(artefacts.write_graph(node.cache, f"k {index}", f"value {index}").relative_to(node.cache))
        if index % 2:
            healthy(node, node.kill_worker())
    no_errors(load)
    node.sync()
    other = cluster.quick("b")
    other.catch_up(node)
    for index, name in enumerate(names):
        assert (other.cache / name).read_text() == f"value {index}"


def test_what_is_open_mapped_and_locked_stays(node):
    path = node.cache / "file"
    content = os.urandom(1 << 20)
    path.write_bytes(content)
    (node.cache / "gone").write_bytes(content)
    with open(path, "rb") as held, open(node.cache / "gone", "rb") as deleted:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.unlink(node.cache / "gone")
        inode = os.fstat(held.fileno()).st_ino
        healthy(node, node.kill_worker())
        for file in (held, deleted):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.read() == content
        assert os.stat(path).st_ino == inode and os.fstat(deleted.fileno()).st_nlink == 0
        with open(path, "rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert sorted(os.listdir(node.cache)) == ["file"]


def test_nobody_else_gets_the_store_between_two_workers(cluster, node):
    (node.cache / "x").write_text("x")
    in_use(cluster, node)
    for _ in range(2):  # a lock that the first worker has taken, and one that was inherited
        (supervisor,) = node.supervisors()
        os.kill(supervisor, signal.SIGSTOP)
        killed = node.kill_worker()
        wait_until(lambda: not node.daemons(), what="the worker's end")
        in_use(cluster, node)
        os.kill(supervisor, signal.SIGCONT)
        healthy(node, killed)
        in_use(cluster, node)
    assert node.cli("upgrade", node.cache).code == 0
    in_use(cluster, node)
    node.unmount()
    assert node.cli("check", "--store", node.store).code == 0
    node.start(*cluster.options())
    assert (node.cache / "x").read_text() == "x"


def test_a_worker_that_hangs_is_replaced(cluster, tmp_path):
    node = cluster.quick("a", "--crash-limit", "0", "--hang-timeout", "2")
    with Load(node.cache, tmp_path / "load") as load:
        load.advance(100)
        stopped = node.kill_worker(signal.SIGSTOP)
        node.next_worker(stopped)
        load.advance(100)
        no_errors(load)
    assert takeover(node)["last_end"] == "hung, and was killed" and takeover(node)["restarts"] == 1


def test_a_host_that_sleeps_or_a_paused_container_counts_no_crash(cluster, tmp_path):
    """All processes of the mount stand still at once, and are continued in either order. A request is in flight each time."""
    node = cluster.quick("a", "--hang-timeout", "1", "--crash-limit", "1")
    with Load(node.cache, tmp_path / "load") as load:
        for turn in range(4):
            load.advance(20)
            frozen = [*node.supervisors(), *node.daemons()]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            slept = time.monotonic() + 2  # the time is what is tested: longer than the limit
            wait_until(lambda end=slept: time.monotonic() > end, what="the pause")
            for pid in frozen if turn % 2 else reversed(frozen):
                os.kill(pid, signal.SIGCONT)
            load.advance(20)
        no_errors(load)
    told = takeover(node)
    assert told["restarts"] == 0 and told["safe_mode"] is False


def test_the_command_line_waits_for_the_next_worker(cluster, node):
    """Its socket is away for a moment; `unmount` must not take that for a dead mount."""
    (supervisor,) = node.supervisors()
    os.kill(supervisor, signal.SIGSTOP)
    killed = node.kill_worker()
    job = Job([PROGRAM, "status", node.cache, "--json"], node.env(), node.root / "jobs", "status")
    wait_until(lambda: job.running and Path(f"/proc/{job._child.pid}").exists(), what="the command")
    os.kill(supervisor, signal.SIGCONT)
    done = job.wait(20)
    assert done.code == 0 and json.loads(done.out)["pid"] != killed, done.err


def test_who_asks_a_worker_that_dies_is_answered_by_the_next(cluster, node):
    stopped = node.kill_worker(signal.SIGSTOP)
    job = Job([PROGRAM, "status", node.cache, "--json"], node.env(), node.root / "jobs", "status")
    descriptors = Path(f"/proc/{job._child.pid}/fd")
    wait_until(lambda: any(os.path.realpath(fd).rpartition("/")[2].startswith("socket:") for fd in descriptors.iterdir()),
               what="the question")
    os.kill(stopped, signal.SIGKILL)
    done = job.wait(20)
    assert done.code == 0 and json.loads(done.out)["pid"] != stopped, done.err


@pytest.mark.usefixtures("root")
def test_further_places_are_shown_once_and_taken_away(cluster):
    node, elsewhere = cluster.node("a", start=False), cluster.directory / "some" / "where"
    options = [word for word in cluster.options("--also", f"precompiled_headers={elsewhere}") if word != "--no-also"]
    node.start(*options)
    for _ in range(2):
        (elsewhere / "x").write_text("x")
        healthy(node, node.kill_worker())
        assert compare.mounts_below(elsewhere) == [str(elsewhere)]
        assert (elsewhere / "x").read_text() == "x"
        (also,) = [place for place in node.status()["also"] if place["path"] == str(elsewhere)]
        assert also["state"] == "bound"
    node.unmount()
    assert compare.mounts_below(elsewhere) == [] and os.listdir(elsewhere) == []


def test_facts_are_not_learned_again(cluster):
    """And the file of options is not read again: it may be broken by now."""
    node = cluster.node("a", start=False)
    options = node.root / "options.toml"
    options.write_text('prefix = "other"\nthreads = 3\n')
    node.start(*cluster.options("--config", options))
    artefacts.write_graph(node.cache, "k", "value")
    node.sync()
    learned = node.status()["facts"]["learned"]
    options.write_text("broken = [")
    healthy(node, node.kill_worker())
    told = node.status()
    assert told["facts"]["learned"] == learned and told["takeover"]["slots"] == 3
    artefacts.write_graph(node.cache, "k2", "value")
    node.sync()
    assert mounts.published(cluster) and all(key.startswith(b"other:") for key in cluster.redis.keys())


# ---- the supervisor

def test_the_supervisor_is_small_and_has_one_thread(node):
    healthy(node, node.kill_worker())
    (pid,) = node.supervisors()
    smaps = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = sum(int(size) for size in re.findall(r"^Private_(?:Clean|Dirty): +(\d+) kB", smaps, re.MULTILINE))
    # A sanitizer brings memory of its own, and TSan a thread.
    assert SANITIZER or (private < 2048 and len(os.listdir(f"/proc/{pid}/task")) == 1)
    loaded = Path(f"/proc/{pid}/maps").read_text()
    assert not re.search(r"hiredis|sqlite|spdlog|libfuse", loaded)


def test_without_its_supervisor_a_worker_serves_on(node):
    (node.cache / "x").write_text("x")
    (pid,) = node.supervisors()
    worker = node.worker()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: takeover(node)["supervisor"] == 0, what="the notice")
    assert (node.cache / "x").read_text() == "x"
    assert node.daemons() == [worker]
    assert any("supervisor is gone" in warning for warning in node.status()["warnings"])
    done = node.cli("upgrade", node.cache)
    assert done.code == 1 and "no supervisor" in done.err and done.err.count("\n") == 1
    node.unmount()
    nothing_is_left(node)


# ---- ends during a takeover

@pytest.mark.parametrize("how", ["unmount", "SIGTERM", "umount"])
def test_the_end_may_come_during_a_takeover(cluster, node, how):
    socket = socket_of(node)
    (node.cache / "x").write_text("x")
    (supervisor,) = node.supervisors()
    os.kill(supervisor, signal.SIGSTOP)
    node.kill_worker()
    commands = {"umount": ["umount", node.cache], "unmount": [PROGRAM, "unmount", node.cache]}
    if how == "SIGTERM":
        os.kill(supervisor, signal.SIGTERM)
    else:
        job = Job(commands[how], node.env(), node.root / "jobs", how)
    os.kill(supervisor, signal.SIGCONT)
    if how in commands:
        done = job.wait(30)
        assert (done.code, done.err) == (0, "")
    wait_until(lambda: not node.processes(), 20, "the end")
    nothing_is_left(node)
    assert not socket.exists()
    node.start(*cluster.options())
    assert (node.cache / "x").read_text() == "x"


def test_a_busy_mount_gets_its_time_from_a_later_worker_too(cluster, node):
    (node.cache / "x").write_text("x")
    (supervisor,) = node.supervisors()
    with open(node.cache / "x", encoding="ascii"):
        os.kill(supervisor, signal.SIGTERM)
        wait_until(lambda: "mount.unmount_busy" in node.log.read_text() or node.daemons(), what="the patience")
        killed = node.kill_worker()
        wait_until(lambda: node.daemons() and node.daemons() != [killed], 20, "the next worker")
        assert compare.is_mounted(node.cache)
    wait_until(lambda: not node.processes(), 20, "the end")
    nothing_is_left(node)

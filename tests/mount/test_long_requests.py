# SPDX-License-Identifier: Apache-2.0
"""Requests that take long, of one user, must not keep the others waiting. The mounts have few threads, so that few such requests
are enough to hold all of them."""
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, mounts
from inductorfs_testing.processes import PATIENCE, wait_until
from inductorfs_testing.users import as_user

THREADS = 2
SIZE = 96 << 20
ONE_BYTE = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b'y', 0)"
READ = "import sys; sys.exit(open(sys.argv[1]).read() != sys.argv[2])"
ASK = "import os, sys\nwhile True: os.getxattr(sys.argv[1], 'user.inductorfs.digest' if len(sys.argv) < 3 else sys.argv[2])"


@contextlib.contextmanager
def python(text, *words):
    child = subprocess.Popen([sys.executable, "-c", text, *map(str, words)], stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def large_files(writer, node, count, size):
    names = [artefacts.code(f"large{index}") for index in range(count)]
    for name in names:
        artefacts.write_atomic(writer.cache, name, "x" * size)
    writer.sync()
    for name in names:
        mounts.appears(node.cache / name)
    return names


def half_copied(node, size):
    """Local copies that are being made."""
    found = []
    for entry in os.scandir(node.store / "files/orphans"):
        with contextlib.suppress(FileNotFoundError):
            found.append(0 < entry.stat().st_size < size)
    return sum(found)


@contextlib.contextmanager
def before_all_others():
    """A copy takes some 50 ms, for which who looks may not be let on where processes without end want its processors."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def is_answered(node, number):
    """A lookup of a name that nobody has asked for."""
    assert not os.path.lexists(node.cache / f"none{number}")


def is_answered_while_copied(node, path, change):
    """Whether the file and another name were asked for, and that was answered, while the file was copied for its writer."""
    number = 0
    while change.poll() is None:
        if half_copied(node, SIZE) == 1:
            number += 1
            with contextlib.suppress(OSError):  # it has none when the copy has just been made
                os.getxattr(path, "user.inductorfs.digest")
            is_answered(node, number)
            if half_copied(node, SIZE) == 1:
                return True
    return False


@pytest.mark.parametrize("whose", ["this node's", "the cluster's"])
def test_a_large_file_that_is_copied_for_its_writer_keeps_nobody_waiting(cluster, whose):
    node = cluster.quick("a", "--threads", str(THREADS), "--prefetch", "0")
    writer = node if whose == "this node's" else cluster.quick("b")
    for name in large_files(writer, node, 4, SIZE):  # a machine that is busy may finish one before it lets us look
        path = node.cache / name
        assert path.stat().st_size == SIZE
        asking = [python(ASK, path, *more) for more in ([], ["user.inductorfs.family"]) for _ in range(2 * THREADS)]
        with contextlib.ExitStack() as stack:
            for child in asking:
                stack.enter_context(child)
            change = stack.enter_context(python(ONE_BYTE, path))
            with before_all_others():
                answered = is_answered_while_copied(node, path, change)
            assert change.wait(60 * PATIENCE) == 0
        assert path.read_bytes() == b"y" + b"x" * (SIZE - 1)
        assert half_copied(node, SIZE + 1) == 0
        if answered:
            return
    raise AssertionError("nothing was answered while a file was copied")


@contextlib.contextmanager
def held(node, count):
    """Files whose first reader waits in the kernel, and with him the thread of the worker that opens them, until this ends: their owner
    has a lease on each. The kernel itself would break it after /proc/sys/fs/lease-break-time, 45 s."""
    names = [f"held{index}" for index in range(count)]
    for name in names:
        (node.cache / name).write_text(name)
    node.unmount()
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    leases = [os.open(next(node.store.rglob(f"view/{name}")), os.O_RDWR) for name in names]
    try:
        for lease in leases:
            fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield [node.cache / name for name in names]
    finally:
        for lease in leases:
            with contextlib.suppress(OSError):
                os.close(lease)
        signal.signal(signal.SIGIO, before)


def free(leases_of):
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.path.basename(os.readlink(f"/proc/self/fd/{number}")) in leases_of:
                os.close(int(number))


def threads_that_open(node):
    """How many threads of the worker wait for the end of a lease."""
    found = 0
    for task in os.listdir(f"/proc/{node.worker()}/task"):
        with contextlib.suppress(OSError):
            found += "break_lease" in Path(f"/proc/{node.worker()}/task/{task}/wchan").read_text()
    return found


def memory_of_takeovers(node):
    """MiB of the memory that outlives a worker. The log of nodes, which is a part, grows by what the worker is told."""
    for number in os.listdir(f"/proc/{node.worker()}/fd"):
        with contextlib.suppress(OSError):
            path = f"/proc/{node.worker()}/fd/{number}"
            if "inductorfs-takeover" in os.readlink(path):
                return os.stat(path).st_blocks * 512 // (1 << 20)
    raise AssertionError("no memory of takeovers")


@pytest.mark.parametrize("killed", [False, True])
def test_more_long_requests_than_threads_keep_nobody_waiting(cluster, killed):
    """Twelve for a mount with two threads; their worker may be killed meanwhile."""
    count = 12
    node = cluster.quick("a")
    with held(node, count) as paths, contextlib.ExitStack() as stack:
        mounts.remount(node, cluster, "--threads", str(THREADS))
        idle = memory_of_takeovers(node)
        readers = [stack.enter_context(python(READ, path, path.name)) for path in paths]
        wait_until(lambda: threads_that_open(node) == count, 30, "all readers to wait")
        is_answered(node, 0)
        if killed:
            node.next_worker(node.kill_worker())
            wait_until(lambda: threads_that_open(node) == count, 30, "the next worker to be at what the first one was")
            is_answered(node, 1)
            assert node.counters()["fuse.resumed"] == count
        assert memory_of_takeovers(node) >= idle + count - THREADS
        free({path.name for path in paths})
        assert [reader.wait(30 * PATIENCE) for reader in readers] == [0] * count
        # The spare threads end, and give back what they had.
        wait_until(lambda: memory_of_takeovers(node) <= idle + 1, 20, "the memory of the spare threads")
        assert node.status()["takeover"]["slots"] == THREADS


def read_as(stack, uid, path):
    """A process of that user which reads the file, and whether it got the content."""
    child = subprocess.Popen([sys.executable, "-c", READ, str(path), path.name], stderr=subprocess.PIPE, text=True, user=uid, group=uid, extra_groups=[])
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def test_a_user_at_the_limit_of_requests_leaves_threads_to_others(cluster, root):
    """Each may have four under way that take long: the fifth of one user is told so, and another user reads."""
    count, limit, one, two = 5, 4, 1000, 1001
    node = cluster.quick("a")
    for above in (cluster.directory, node.cache.parent):
        os.chmod(above, 0o755)
    with held(node, count) as paths, contextlib.ExitStack() as stack:
        mounts.remount(node, cluster, "--threads", str(THREADS), "--user-requests", str(limit))
        for path in paths:
            assert as_user(two, 0o022, os.path.getsize, path) == len(path.name), "before anybody waits: lookups are requests, too"
        (node.cache / "free").write_text("free")
        readers = [read_as(stack, one, path) for path in paths[:limit]]
        wait_until(lambda: threads_that_open(node) == limit, 30, "all readers to wait")
        fifth = read_as(stack, one, paths[limit])
        assert fifth.wait(30 * PATIENCE) != 0 and "Disk quota exceeded" in fifth.stderr.read()
        assert as_user(two, 0o022, (node.cache / "free").read_text) == "free"
        assert node.counters()["fuse.over_limit"] >= 1
        status = node.status()["file_system"]
        assert status["user_requests"] == limit
        assert f"fuse.over_limit user={one} limit={limit}" in node.log.read_text()
        free({path.name for path in paths})
        assert [reader.wait(30 * PATIENCE) for reader in readers] == [0] * limit
        assert read_as(stack, one, paths[limit]).wait(30 * PATIENCE) == 0

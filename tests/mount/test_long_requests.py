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
from inductorfs_testing import mounts
from inductorfs_testing.processes import PATIENCE, wait_until

THREADS = 2
READ = "import sys; sys.exit(open(sys.argv[1]).read() != sys.argv[2])"


@contextlib.contextmanager
def python(text, *words):
    child = subprocess.Popen([sys.executable, "-c", text, *map(str, words)], stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def is_answered(node, number):
    """A lookup of a name that nobody has asked for."""
    assert not os.path.lexists(node.cache / f"none{number}")


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

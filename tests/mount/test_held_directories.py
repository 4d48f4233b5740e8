# SPDX-License-Identifier: Apache-2.0
"""A user who holds the kernel's lock of a directory for ever: a listing keeps it while its buffer, a file of another file system, is
read. The kernel tells nobody of that directory's names meanwhile; of all others it does."""
import subprocess
import sys

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.hung_files import hung_files
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import wait_until

HOLDER = """
import ctypes, mmap, os, sys
buffer = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 1 << 16, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
directory = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
print("ready", flush=True)
sys.stdin.readline()
libc = ctypes.CDLL(None)
libc.getdents64(directory, ctypes.byref(ctypes.c_char.from_buffer(buffer)), ctypes.c_size_t(1 << 16))
"""


GETDENTS64 = "217"  # on x86-64


def holds(process):
    with open(f"/proc/{process.pid}/syscall") as call:
        return call.read().split()[0] == GETDENTS64


@pytest.mark.usefixtures("root")
def test_a_directory_that_somebody_holds_keeps_no_other_from_what_the_cluster_has(cluster, tmp_path):
    a, b = cluster.quick("a"), cluster.quick("b")
    held, free = artefacts.code("held"), artefacts.code("free")
    for name in (held, free):
        (a.cache / name).parent.mkdir()
        assert not (a.cache / name).exists()  # the kernel keeps that
    source = tmp_path / "source"
    source.mkdir()
    (source / "buffer").write_bytes(bytes(1 << 16))
    with hung_files(source, tmp_path / "hung") as hang:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "hung" / "buffer", (a.cache / held).parent],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert holder.stdout.readline() == "ready\n"
            hang()
            holder.stdin.write("\n")
            holder.stdin.flush()
            wait_until(lambda: holds(holder), what="somebody who holds the directory")
            for name in (held, free):
                artefacts.write_atomic(b.cache, name, "print()")
                b.sync()
            assert appears(a.cache / free).read_text() == "print()"
            assert holds(holder)
        finally:
            holder.kill()
    holder.wait(20)
    assert appears(a.cache / held).read_text() == "print()"

# SPDX-License-Identifier: Apache-2.0
"""Every operation on attributes and data, locks and execution, done on the mount and on a plain directory of the same disk: results, errors and effects must be equal. Each is
done to files of three origins: `private` ones, of no known family; `sealed` ones, that this node made and published;
`cluster` ones, that another node made."""
import fcntl
import hashlib
import mmap
import os
import shutil
import stat
import subprocess
import sys
import threading

import pytest
from inductorfs_testing.processes import run
from inductorfs_testing.twin import FIRST, KEEP_SIZE, PUNCH_HOLE, SECOND, ZERO_RANGE, attempt, fallocate, same
from inductorfs_testing.fixtures import lack


# ---- attributes

def test_chmod_and_chown(places):
    def operation(place):
        told = []
        for path in (place.one, place.one.parent, place.work):
            for mode in (0o600, 0o4755, 0o000, 0o777, 0o644 if path == place.one else 0o755):
                told.append((attempt(os.chmod, path, mode), stat.S_IMODE(os.stat(path).st_mode)))
        told += [attempt(os.chown, place.one, 1234, 2345), os.stat(place.one).st_uid, os.stat(place.one).st_gid,
                 attempt(os.chown, place.one, -1, 7), attempt(os.chmod, place.root / "none", 0o600),
                 place.one.read_bytes() == FIRST]
        descriptor = os.open(place.two, os.O_RDONLY)
        told += [attempt(os.fchmod, descriptor, 0o640)]
        os.close(descriptor)
        return told
    if os.geteuid() != 0:
        lack("chown is root's")
    assert same(places, operation)[-2] is True


def test_times(places):
    def operation(place):
        told = []
        for path in (place.one, place.work):
            os.utime(path, ns=(1_000_000_000_123_456_789, 1_234_567_890_987_654_321))
            status = os.stat(path)
            told += [status.st_atime_ns, status.st_mtime_ns]
        os.utime(place.two)
        told += [abs(os.stat(place.two).st_mtime - os.stat(place.one).st_ctime) < 60]
        os.symlink("x", place.work / "link")
        os.utime(place.work / "link", ns=(5, 7), follow_symlinks=False)
        told += [os.lstat(place.work / "link").st_mtime_ns]
        before = os.stat(place.one).st_mtime_ns
        with open(place.one, "ab") as file:
            file.write(b"x")
        told += [os.stat(place.one).st_mtime_ns > before]
        return told
    same(places, operation)


def test_a_change_of_a_directory_changes_its_time(places):
    def operation(place):
        told = []
        for change in (lambda: (place.work / "x").write_text(""), lambda: os.unlink(place.work / "x"),
                       lambda: os.mkdir(place.work / "d")):
            os.utime(place.work, (1, 1))
            change()
            told.append(os.stat(place.work).st_mtime > 1)
        return told
    assert same(places, operation) == [True, True, True]


def test_inode_numbers_are_stable_and_listed(places):
    def operation(place):
        before = os.stat(place.one).st_ino
        with open(place.one, "rb") as file:
            told = [os.fstat(file.fileno()).st_ino == before]
        with os.scandir(place.one.parent) as entries:
            told += [all(entry.inode() == os.lstat(entry.path).st_ino for entry in entries)]
        os.rename(place.one, place.work / "moved")
        told += [os.stat(place.work / "moved").st_ino != os.stat(place.two).st_ino]
        return told
    assert same(places, operation) == [True, True, True]


def test_xattrs(places):
    def operation(place):
        path = place.one
        told = [attempt(os.getxattr, path, "user.none"), attempt(os.setxattr, path, "user.a", b"1"),
                attempt(os.getxattr, path, "user.a"), attempt(os.setxattr, path, "user.a", b"2", os.XATTR_CREATE),
                attempt(os.setxattr, path, "user.b", b"2", os.XATTR_REPLACE), attempt(os.setxattr, path, "user.b", b"x" * 2000),
                sorted(os.listxattr(path)),
                attempt(os.removexattr, path, "user.a"), attempt(os.removexattr, path, "user.a"), path.read_bytes() == FIRST,
                attempt(os.setxattr, place.work, "user.d", b"directory"), attempt(os.getxattr, place.work, "user.d"),
                attempt(os.setxattr, place.one.parent, "user.d", b"x")]
        os.rename(path, place.work / "moved")
        told += [attempt(os.getxattr, place.work / "moved", "user.b")]
        return told
    same(places, operation)


def test_own_xattrs_tell_and_are_read_only(places):
    mounted, _ = places
    path = mounted.one
    assert os.listxattr(path) == []
    if path.parent.name.startswith("directory"):
        assert os.getxattr(path, "user.inductorfs.family") == b"other"
        return
    assert os.getxattr(path, "user.inductorfs.family") == b"cpp_source"
    assert os.getxattr(path, "user.inductorfs.digest").decode() == hashlib.sha256(FIRST).hexdigest()
    assert b"/" in os.getxattr(path, "user.inductorfs.origin")
    for change in (lambda: os.setxattr(path, "user.inductorfs.digest", b"x"),
                   lambda: os.removexattr(path, "user.inductorfs.digest"),
                   lambda: os.setxattr(path, "user.inductorfs.new", b"x")):
        assert attempt(change) == "PermissionError 1"


def test_statfs(places):
    mounted, plain = (os.statvfs(place.one) for place in places)
    assert mounted.f_namemax == 255
    assert (mounted.f_blocks * mounted.f_frsize, mounted.f_bsize > 0) == (plain.f_blocks * plain.f_frsize, True)
    assert abs(mounted.f_bavail * mounted.f_frsize - plain.f_bavail * plain.f_frsize) < 1 << 30


# ---- data

def test_truncate(places):
    def operation(place):
        told = [attempt(os.truncate, place.one, 100), os.stat(place.one).st_size, place.one.read_bytes() == FIRST[:100],
                attempt(os.truncate, place.one, 5000), place.one.read_bytes()[90:110], attempt(os.truncate, place.work, 1)]
        os.close(os.open(place.two, os.O_WRONLY | os.O_TRUNC))
        told += [os.stat(place.two).st_size]
        with open(place.two, "wb") as file:
            file.write(b"new")
        with open(place.two, "r+b") as file:
            told += [attempt(os.ftruncate, file.fileno(), 1), file.read()]
        with open(place.two, "rb") as file:
            told += [attempt(os.ftruncate, file.fileno(), 0), attempt(os.ftruncate, file.fileno(), -1)]
        return told
    same(places, operation)


def test_overwrite_in_place(places):
    def operation(place):
        with open(place.one, "r+b") as file:
            file.seek(100)
            file.write(b"CHANGED")
        with open(place.two, "r+b", buffering=0) as file, open(place.two, "rb", buffering=0) as other:
            file.write(b"seen at once")
            told = [other.read(12)]
        return [place.one.read_bytes()[95:110], *told]
    same(places, operation)


def test_append(places):
    def operation(place):
        first = os.open(place.one, os.O_WRONLY | os.O_APPEND)
        second = os.open(place.one, os.O_RDWR | os.O_APPEND)
        os.write(first, b"one")
        os.write(second, b"two")
        os.lseek(first, 0, os.SEEK_SET)
        os.write(first, b"three")
        told = [os.pread(second, 100, len(FIRST))]
        os.close(first)
        os.close(second)
        return told
    assert same(places, operation) == [b"onetwothree"]


def test_appends_of_several_processes_are_all_there(places):
    code = ("import os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)\n"
            "for i in range(300): os.write(fd, (sys.argv[2] + '%04d\\n' % i).encode())")

    def operation(place):
        children = [subprocess.Popen([sys.executable, "-S", "-c", code, str(place.one), letter]) for letter in "abcd"]
        told = [child.wait(60) for child in children]
        lines = place.one.read_bytes()[len(FIRST):].decode().splitlines()
        place.one.write_bytes(b"")
        return told + [sorted(lines)]
    same(places, operation)


def test_sparse_writes(places):
    def operation(place):
        descriptor = os.open(place.one, os.O_RDWR | os.O_TRUNC)
        os.pwrite(descriptor, b"x" * 4096, 1 << 20)
        os.pwrite(descriptor, b"y", 3 << 20)
        told = [attempt(os.lseek, descriptor, 4 << 20, os.SEEK_DATA), attempt(os.lseek, descriptor, 4 << 20, os.SEEK_HOLE),
                os.lseek(descriptor, 0, os.SEEK_END), os.pread(descriptor, 3, (1 << 20) - 1)]
        os.close(descriptor)
        return told
    same(places, operation)


def test_a_file_has_no_holes_for_who_seeks_them(places):
    """As POSIX allows. What is dirty in a shared mapping, where the disk has a hole, is data too."""
    with open(places[0].one, "w+b") as file:
        file.truncate(1 << 20)
        with mmap.mmap(file.fileno(), 1 << 20) as mapping:
            mapping[500_000:500_003] = b"xyz"
            assert os.lseek(file.fileno(), 0, os.SEEK_DATA) <= 500_000
            assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 1 << 20
            subprocess.run(["cp", "--sparse=auto", places[0].one, places[0].root / "copy"], check=True)
            assert (places[0].root / "copy").read_bytes()[500_000:500_003] == b"xyz"


def test_who_seeks_holes_asks_the_daemon_once_at_most(two_nodes):
    node = two_nodes._nodes[0]
    asked = lambda: sum(node.requests().values())  # noqa: E731
    with open(node.cache / "seek", "w+b") as file:
        file.write(b"x" * 2000)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_DATA)
        before = asked()
        assert [os.lseek(file.fileno(), offset, os.SEEK_DATA) for offset in range(1000)] == list(range(1000))
        assert {os.lseek(file.fileno(), offset, os.SEEK_HOLE) for offset in range(1000)} == {2000}
        assert asked() - before < 100  # the 2,000 calls; `status` itself may look at the mount


def test_fallocate(places):
    def operation(place):
        descriptor = os.open(place.one, os.O_RDWR)
        told = [attempt(fallocate, descriptor, 0, 0, 100_000), os.fstat(descriptor).st_size,
                attempt(fallocate, descriptor, KEEP_SIZE, 0, 200_000), os.fstat(descriptor).st_size,
                attempt(fallocate, descriptor, PUNCH_HOLE | KEEP_SIZE, 0, 4096), os.pread(descriptor, 10, 0),
                os.pread(descriptor, 10, 4096), attempt(fallocate, descriptor, ZERO_RANGE, 4090, 20),
                os.pread(descriptor, 40, 4080), attempt(fallocate, descriptor, PUNCH_HOLE, 0, 4096),
                attempt(os.posix_fallocate, descriptor, 0, 300_000), os.fstat(descriptor).st_size,
                attempt(fallocate, descriptor, 0, 0, 0)]
        os.close(descriptor)
        return told
    same(places, operation)


def test_mmap(places):
    def operation(place):
        with open(place.one, "r+b") as file:
            with mmap.mmap(file.fileno(), 0) as shared:
                shared[0:6] = b"SHARED"
                shared[-1:] = b"!"
                told = [file.read(6)]
                shared.flush()
            with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as private:
                private[0:7] = b"PRIVATE"
                file.seek(0)
                told += [file.read(7), private[0:7]]
        with open(place.two, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            os.unlink(place.two)
            told += [mapped[:] == SECOND]
        with open(place.work / "grown", "w+b") as file:
            os.ftruncate(file.fileno(), 1 << 20)
            with mmap.mmap(file.fileno(), 0) as shared:
                shared[5000:5005] = b"bytes"
                shared[(1 << 20) - 1:] = b"e"
        told += [(place.work / "grown").read_bytes()[5000:5005], place.one.read_bytes()[:6]]
        return told
    same(places, operation)


def test_mmap_write_then_close_then_rename(places):
    def operation(place):
        with open(place.work / "temporary", "w+b") as file:
            os.ftruncate(file.fileno(), 300_000)
            mapped = mmap.mmap(file.fileno(), 0)
        mapped[200_000:200_004] = b"late"
        os.rename(place.work / "temporary", place.one)
        mapped[100_000:100_005] = b"later"
        mapped.close()
        return [place.one.read_bytes()[200_000:200_004], place.one.read_bytes()[100_000:100_005]]
    same(places, operation)


def test_copy_file_range(places):
    def operation(place):
        told = []
        with open(place.one, "rb") as source, open(place.work / "copy", "wb") as target:
            told += [os.copy_file_range(source.fileno(), target.fileno(), 1000, 5),
                     os.copy_file_range(source.fileno(), target.fileno(), 1 << 20)]
        with open(place.one, "rb") as source, open(place.two, "r+b") as target:
            told += [os.copy_file_range(source.fileno(), target.fileno(), 10, 0, 5)]
            told += [os.sendfile(target.fileno(), source.fileno(), 0, 20)]
        shutil.copyfile(place.one, place.work / "third")
        return told
    same(places, operation)


@pytest.mark.usefixtures("root")
def test_an_fsync_of_much_is_done_in_pieces_by_the_same_worker(cluster):
    """More than `kSyncPiece` (src/vfs/write/data.cc)."""
    node = cluster.quick("a")
    worker = node.worker()
    with open(node.cache / "much", "wb", buffering=0) as file:
        for _ in range(20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
    assert node.worker() == worker and node.status()["takeover"]["restarts"] == 0


def test_fsync(places):
    def operation(place):
        told = []
        for path, flags in ((place.one, os.O_RDWR), (place.work, os.O_RDONLY), (place.one.parent, os.O_RDONLY)):
            descriptor = os.open(path, flags)
            told += [attempt(os.fsync, descriptor), attempt(os.fdatasync, descriptor)]
            os.close(descriptor)
        return told
    same(places, operation)


def test_large_writes_in_odd_pieces(places):
    def operation(place):
        digest = hashlib.sha256()
        with open(place.one, "wb", buffering=0) as file:
            for index in range(300):
                piece = bytes([index % 251]) * (index * 367 % 90_001 + 1)
                digest.update(piece)
                file.write(piece)
        told = [hashlib.sha256(place.one.read_bytes()).hexdigest() == digest.hexdigest(), os.stat(place.one).st_size]
        with open(place.one, "rb", buffering=0) as file:
            file.seek(1_000_001)
            told += [hashlib.sha256(file.read(3_000_003)).hexdigest()]
        return told
    assert same(places, operation)[0] is True


def test_listing_while_names_come_and_go(places):
    def operation(place):
        for index in range(1500):
            (place.work / f"{index:04}").touch()
        seen, removed = [], 0
        with os.scandir(place.work) as entries:
            for entry in entries:
                seen.append(entry.name)
                os.unlink(entry.path)
                removed += 1
        return [len(set(seen)) == len(seen), removed, sorted(os.listdir(place.work))]
    assert same(places, operation) == [True, 1500, []]


# ---- locks and execution

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
(fcntl.flock if sys.argv[2] == "flock" else fcntl.lockf)(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_locks_between_processes(places, kind):
    take = fcntl.flock if kind == "flock" else fcntl.lockf

    def operation(place):
        holder = subprocess.Popen([sys.executable, "-S", "-c", HOLD, str(place.one), kind], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            told = [holder.stdout.readline()]
            descriptor = os.open(place.one, os.O_RDWR)
            told += [attempt(take, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)]
            threading.Timer(0.2, holder.communicate, ["\n"]).start()
            told += [attempt(take, descriptor, fcntl.LOCK_EX)]  # waits until the holder goes
            os.close(descriptor)
        finally:
            holder.wait(20)
        return told
    assert same(places, operation) == ["held\n", "BlockingIOError 11", None]


def test_a_library_and_a_program_run_from_the_mount(places):
    def operation(place):
        source = place.work / "source.c"
        source.write_text("int answer(void) { return 42; }\nint main(void) { return answer() - 35; }\n")
        library, program = place.work / "lib.so", place.work / "program"
        told = [run(["cc", "-shared", "-fPIC", source, "-o", library]).code, run(["cc", source, "-o", program]).code]
        load = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).answer())"
        told += [run([sys.executable, "-S", "-c", load, library]).code, run([program]).code]
        script = place.work / "script"
        script.write_text("#!/bin/sh\nexit 9\n")
        script.chmod(0o755)
        told += [run([script]).code]
        for path in (library, program):  # linkers' output differs from run to run in nothing but the path
            path.unlink()
        return told
    assert same(places, operation) == [0, 0, 42, 7, 9]

# SPDX-License-Identifier: Apache-2.0
"""A file system that can be made to hang: a read-only view of a directory by FUSE, whose process the test stops, or which takes
requests and answers none any more, or which never answers an open. Root."""
import contextlib
import ctypes
import errno
import os
import platform
import shutil
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path

from .processes import wait_until

LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 26, 36, 42
HOLD_OPENS = "hold opens"
IN_HEADER = struct.Struct("=IIQQIIII")
NOSUID_NODEV = 0x6
REQUEST_ROOM = 1 << 18
OPEN_TREE, MOVE_MOUNT = 428, 429  # of all machines
UMOUNT2 = 39 if platform.machine() == "aarch64" else 166
AT_FDCWD, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MNT_DETACH = -100, 1, 4, 2


def attributes(path, number):
    status = os.stat(path)
    return struct.pack("=6Q10I", number, status.st_size, 0, 0, 1, 1, 0, 0, 0, status.st_mode, 1, 0, 0, 0, 4096, 0)


class Server:
    """Answers for nodes, which are paths. Nothing may be kept: each walk asks again. An open that is held ends when the kernel says that
    a signal came for who waits for it."""

    def __init__(self, device, source, holds_opens):
        self._device, self._paths, self._deaf = device, ["", source], False
        self._holds_opens, self._held = holds_opens, set()
        signal.signal(signal.SIGUSR1, self._fall_deaf)

    def _fall_deaf(self, *_):
        self._deaf = True

    def run(self):
        while True:
            request = os.read(self._device, REQUEST_ROOM)
            _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
            body = request[IN_HEADER.size:]
            if opcode == OPEN and self._holds_opens:
                self._held.add(unique)
                continue
            if opcode == INTERRUPT and (held := struct.unpack_from("=Q", body)[0]) in self._held:
                self._held.remove(held)
                self._reply(held, -errno.EINTR)
                continue
            if self._deaf or opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                self._reply(unique, 0, self._answer(opcode, node, body))
            except OSError as failed:
                self._reply(unique, -failed.errno)

    def _reply(self, unique, error, answer=b""):
        with contextlib.suppress(FileNotFoundError):  # interrupted meanwhile
            os.write(self._device, struct.pack("=IiQ", 16 + len(answer), error, unique) + answer)

    def _answer(self, opcode, node, body):
        if opcode == INIT:
            return struct.pack("=4I2H2I2HI7I", 7, 31, 0, 0, 1, 1, 1 << 16, 1, 16, 0, *[0] * 8)
        path = self._paths[node]
        if opcode == LOOKUP:
            child = os.path.join(path, os.fsdecode(body.rstrip(b"\0")))
            os.stat(child)
            if child not in self._paths:
                self._paths.append(child)
            number = self._paths.index(child)
            return struct.pack("=4Q2I", number, 0, 0, 0, 0, 0) + attributes(child, number)
        if opcode == GETATTR:
            return struct.pack("=Q2I", 0, 0, 0) + attributes(path, node)
        if opcode == READ:
            _, offset, size = struct.unpack_from("=2QI", body)
            return Path(path).read_bytes()[offset:offset + size]
        raise OSError(errno.ENOSYS, "not done here")


def serve(source, mountpoint, *how):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode={stat.S_IFDIR:o},user_id=0,group_id=0,allow_other"
    if ctypes.CDLL(None, use_errno=True).mount(b"test", mountpoint.encode(), b"fuse", NOSUID_NODEV, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    Server(device, source, HOLD_OPENS in how).run()


@contextlib.contextmanager
def hung_files(source: Path, mountpoint: Path, by=signal.SIGSTOP, how=()):
    """The directory at another path; what it gives makes it hang. At the end whoever waits there gets an error. SIGSTOP: what waits
    there can be killed. SIGUSR1: not even that, since requests are taken and not answered."""
    mountpoint.mkdir()
    server = subprocess.Popen([sys.executable, "-B", "-m", __name__, source, mountpoint, *how], cwd=Path(__file__).parent.parent)
    try:
        wait_until(lambda: os.path.ismount(mountpoint), what="the file system that will hang")
        yield lambda: server.send_signal(by)
    finally:
        server.kill()  # closes the device, which ends the waits
        server.wait(20)
        subprocess.run(["umount", "-l", mountpoint], check=False)


@contextlib.contextmanager
def open_hangs(file: Path, room: Path, process):
    """Whoever opens this file waits until a signal comes for it, as on a disk that does not answer, in the mount namespace of this
    process. All else that is asked of the file is answered, and other files are as they were. `room`: a directory that this makes."""
    source = room / "source"
    source.mkdir(parents=True)
    shutil.copy2(file, source / file.name)
    with hung_files(source, room / "hung", how=[HOLD_OPENS]), open(f"/proc/{process}/ns/mnt", "rb") as space:
        # Cut off from its own namespace, so that it may go into another one.
        tree = system_call(OPEN_TREE, AT_FDCWD, bytes(room / "hung" / file.name), OPEN_TREE_CLONE | os.O_CLOEXEC)
        in_namespace(space, lambda: system_call(MOVE_MOUNT, tree, b"", AT_FDCWD, bytes(file), MOVE_MOUNT_F_EMPTY_PATH))
        os.close(tree)
        try:
            yield
        finally:
            in_namespace(space, lambda: taken_away(file))


def taken_away(file):
    """Who served may have gone meanwhile, and its store with it."""
    try:
        return system_call(UMOUNT2, bytes(file), MNT_DETACH)
    except OSError as failed:
        return 0 if failed.errno in (errno.ENOENT, errno.EINVAL) else -1


def system_call(number, *arguments):
    result = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def in_namespace(space, act):
    """Does this in a child that lives in that mount namespace."""
    child = os.fork()
    if child == 0:
        try:
            code = 0 if ctypes.CDLL(None).setns(space.fileno(), 0) == 0 and act() >= 0 else 1
        except OSError as failed:
            code = failed.errno
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, "the mount in the worker's namespace"


if __name__ == "__main__":
    serve(*sys.argv[1:])

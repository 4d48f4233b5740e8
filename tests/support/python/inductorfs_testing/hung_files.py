# SPDX-License-Identifier: Apache-2.0
"""A file system that can be made to hang: a read-only view of a directory by FUSE, whose process the test stops, or which takes
requests and answers none any more, or which never answers an open. Root."""
import contextlib
import ctypes
import errno
import os
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
def open_hangs(file: Path, room: Path):
    """Whoever opens this file waits until a signal comes for it, as on a disk that does not answer. All else that is asked of the file is
    answered, and other files are as they were. `room`: a directory that this makes."""
    source = room / "source"
    source.mkdir(parents=True)
    shutil.copy2(file, source / file.name)
    with hung_files(source, room / "hung", how=[HOLD_OPENS]):
        subprocess.run(["mount", "--bind", room / "hung" / file.name, file], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", file], check=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""Small disks of a test's own, that become full, read-only or broken. Root only."""
import errno
import fcntl
import itertools
import os
import struct
import subprocess
from pathlib import Path

from .fixtures import lack, need

EXT4_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN of linux/fs/ext4/ext4.h, which xfstests use


def call(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, timeout=30)
    if done.returncode != 0:
        lack(f"{words[0]}: {done.stderr.decode(errors='replace').strip()}")


PIECES = ((1 << 20, 1 << 20), (1 << 12, 1 << 20), (1, 1 << 13))  # bytes, and how many of them: of the last, more than a block's


def _takes_all(path: Path, size, most):
    """False: there was room for so many pieces."""
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(most):
                file.write(b"b" * size)
                os.fsync(file.fileno())
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.EDQUOT)
        return True
    return False


def fill(directory: Path):
    """Leaves no byte and no inode for another file. A daemon that evicts meanwhile makes room, which is taken too: in large pieces, for a
    million bytes one by one would take minutes."""
    for number in itertools.count():
        if all(_takes_all(directory / f"ballast {number} {size}", size, most) for size, most in PIECES):
            return


def take_inodes(directory: Path):
    made = 0
    try:
        while True:
            (directory / f"inode {made}").touch()
            made += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC


def give_back(directory: Path):
    """What fill and take_inodes have taken."""
    for name in os.listdir(directory):
        if name.startswith(("ballast", "inode")):
            (directory / name).unlink()


class Disk:
    """Mounted at `path` while it is entered."""

    def __init__(self, path: Path):
        self.path = path
        path.mkdir(exist_ok=True)

    def __enter__(self):
        self.mount()
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], capture_output=True, timeout=30)

    def remount(self, mode):
        """As `ro`, which takes files that are open for writing, or `rw`."""
        call("mount", "-o", f"remount,{mode}", self.path)


class Tmpfs(Disk):
    def __init__(self, path, options):
        super().__init__(path)
        self._options = options

    def mount(self):
        call("mount", "-t", "tmpfs", "-o", self._options, "tmpfs", self.path)


class Ramfs(Disk):
    def mount(self):
        call("mount", "-t", "ramfs", "ramfs", self.path)


class Ext4(Disk):
    """A real one, in a file behind a loop device: it can turn read-only or die as disks do."""

    def __init__(self, path, megabytes=64, options=()):
        super().__init__(path)
        self._file = path.with_name(path.name + ".img")
        with open(self._file, "wb") as file:
            file.truncate(megabytes << 20)
        call("mkfs.ext4", "-q", "-F", "-m", "0", *options, self._file)

    def mount(self):
        call("mount", "-o", "loop,errors=remount-ro", self._file, self.path)

    def turn_read_only(self):
        """As after an error in its own structures."""
        source = subprocess.run(["findmnt", "-no", "SOURCE", self.path], capture_output=True, text=True, timeout=30, check=True)
        switch = Path("/sys/fs/ext4") / os.path.basename(source.stdout.strip()) / "trigger_fs_error"
        if not switch.exists():
            lack(f"there is no {switch}")
        switch.write_text("a test")

    def die(self):
        """Every use is EIO from here on; what was not synced is lost, as with the power."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, EXT4_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(directory)


class Btrfs(Disk):
    def __init__(self, path, megabytes=140):
        need("mkfs.btrfs")
        super().__init__(path)
        self._file = path.with_name(path.name + ".img")
        with open(self._file, "wb") as file:
            file.truncate(megabytes << 20)
        call("mkfs.btrfs", "-q", "--mixed", self._file)

    def mount(self):
        call("mount", "-o", "loop", self._file, self.path)


class Xfs(Disk):
    def __init__(self, path, megabytes=320):  # no smaller one is made
        need("mkfs.xfs")
        super().__init__(path)
        self._file = path.with_name(path.name + ".img")
        with open(self._file, "wb") as file:
            file.truncate(megabytes << 20)
        call("mkfs.xfs", "-q", self._file)

    def mount(self):
        call("mount", "-o", "loop", self._file, self.path)


class Limited(Btrfs):
    """Has room, but a quota on the directory `store`: writes beyond it are EDQUOT. btrfs, because kernels without CONFIG_QFMT_V2
    know no quota of ext4, and those with CONFIG_TMPFS_QUOTA are few."""

    def __init__(self, path, quota_megabytes, megabytes=192):
        need("btrfs")
        super().__init__(path, megabytes)
        self._quota = quota_megabytes

    def mount(self):
        super().mount()
        call("btrfs", "quota", "enable", self.path)
        call("btrfs", "subvolume", "create", self.path / "store")
        call("btrfs", "qgroup", "limit", f"{self._quota}M", self.path / "store")

    def free(self):
        """Bytes of the disk itself."""
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

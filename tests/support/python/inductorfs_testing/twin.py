# SPDX-License-Identifier: Apache-2.0
"""A place on the mount and its twin on a plain directory: the same operation in both must tell and leave the same."""
import ctypes
import hashlib
import itertools
import os
import stat
from pathlib import Path

from inductorfs_testing import artefacts

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
ORIGINS = ("private", "sealed", "cluster")
FIRST, SECOND = b"first content\n" * 300, b"second content\n" * 20


class Place:
    """A directory with two files in it, below the mount or below a plain directory."""

    def __init__(self, root: Path, one, two):
        self.root, self.one, self.two = root, root / one, root / two
        self.work = root / "work"

    def tree(self):
        """Everything here: type, mode, size, links and content."""
        found = {}
        tops = [self.one.parent, self.two.parent, self.work]
        for top in tops:
            if not os.path.lexists(top):
                continue
            found[os.path.relpath(top, self.root)] = describe(top)
            for directory, names, files in os.walk(top):
                for name in names + files:
                    path = os.path.join(directory, name)
                    found[os.path.relpath(path, self.root)] = describe(path)
        return found


def describe(path):
    status = os.lstat(path)
    what = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid]
    if stat.S_ISREG(status.st_mode):
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest() if status.st_mode & 0o400 else "unreadable"
        what += [status.st_size, status.st_nlink, digest]
    if stat.S_ISLNK(status.st_mode):
        what += [os.readlink(path), status.st_size]
    return what


def attempt(function, *arguments, **keywords):
    """The result, or the error's name."""
    try:
        return function(*arguments, **keywords)
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"


def same(places, operation):
    """Does it in both places and compares what it told and what it left."""
    mounted, plain = places
    told = operation(mounted), operation(plain)
    assert told[0] == told[1]
    assert mounted.tree() == plain.tree()
    return told[0]


def checked(result):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def renameat2(old, new, flags):
    return checked(LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


def fallocate(descriptor, mode, offset, length):
    return checked(LIBC.fallocate(descriptor, mode, ctypes.c_long(offset), ctypes.c_long(length)))


_taken = set()


def unused_name(number, seed):
    """A generated source's name in a directory of its own."""
    for attempt in itertools.count():
        name = artefacts.code(f"{number} {seed} {attempt}")
        if name[:2] not in _taken:
            _taken.add(name[:2])
            return name

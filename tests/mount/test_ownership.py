# SPDX-License-Identifier: Apache-2.0
"""Whose a file is, is data of the daemon's. Three users do the same in a mount and in a directory of the local disk: each call ends
in the same way, and each name looks the same, also after another worker and another mount. On the store's disk all is the daemon's."""
import errno
import os
import random
import socket
import stat

import pytest
from inductorfs_testing.mounts import remount
from inductorfs_testing.users import as_user

pytestmark = pytest.mark.usefixtures("root")
ROOT, ONE, TWO, TEAM = 0, 1000, 1001, 2000
USERS = (ROOT, ONE, TWO)
MODES = (0o600, 0o640, 0o644, 0o666, 0o700, 0o750, 0o755, 0o777, 0o1777, 0o2775, 0o4755, 0o2755, 0o6711, 0o000, 0o444)
BATCH, BATCHES = 12, 40
NAMES = [f"{directory}{name}" for directory in ("", "a/", "b/", "a/c/") for name in "abcfghijk"]


def make_socket(path, mode):
    with socket.socket(socket.AF_UNIX) as one:
        old = os.umask(~mode & 0o777)
        try:  # a path has 108 bytes at most
            os.chdir(os.path.dirname(path))
            one.bind(os.path.basename(path))
        finally:
            os.umask(old)


def write(path, flags, mode, data):
    file = os.open(path, flags | os.O_NONBLOCK, mode)
    try:
        return os.write(file, data) if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)


CALLS = {
    "create": lambda at, draw: write(at(draw["one"]), os.O_CREAT | os.O_EXCL | os.O_WRONLY, draw["mode"], b"created"),
    "append": lambda at, draw: write(at(draw["one"]), os.O_APPEND | os.O_WRONLY, 0, b"more"),
    "truncate": lambda at, draw: write(at(draw["one"]), os.O_TRUNC | os.O_WRONLY, 0, b""),
    "mkdir": lambda at, draw: os.mkdir(at(draw["one"]), draw["mode"]),
    "symlink": lambda at, draw: os.symlink(draw["target"], at(draw["one"])),
    "mkfifo": lambda at, draw: os.mkfifo(at(draw["one"]), draw["mode"]),
    "socket": lambda at, draw: make_socket(at(draw["one"]), draw["mode"]),
    "chmod": lambda at, draw: os.chmod(at(draw["one"]), draw["mode"]),
    "chown": lambda at, draw: os.chown(at(draw["one"]), *draw["owner"]),
    "lchown": lambda at, draw: os.lchown(at(draw["one"]), *draw["owner"]),
    "link": lambda at, draw: os.link(at(draw["one"]), at(draw["other"]), follow_symlinks=False),
    "rename": lambda at, draw: os.rename(at(draw["one"]), at(draw["other"])),
    "unlink": lambda at, draw: os.unlink(at(draw["one"])),
    "rmdir": lambda at, draw: os.rmdir(at(draw["one"])),
    "readlink": lambda at, draw: os.readlink(at(draw["one"])),
    "access": lambda at, draw: [os.access(at(draw["one"]), how) for how in (os.R_OK, os.W_OK, os.X_OK)],
    "utime": lambda at, draw: os.utime(at(draw["one"]), (1, 2), follow_symlinks=False),
    "list": lambda at, draw: sorted((item.name, item.is_symlink(), item.is_dir(follow_symlinks=False), item.is_file(follow_symlinks=False))
                                    for item in os.scandir(at(draw["one"]))),
}


def draw(chance):
    who = (ROOT, ONE, TWO, TEAM, -1)
    return {"call": chance.choice([*CALLS, "create", "create", "mkdir", "chmod", "chown", "symlink", "link", "rename"]), "one": chance.choice(NAMES),
            "other": chance.choice(NAMES), "mode": chance.choice(MODES), "owner": chance.choice([(uid, gid) for uid in who for gid in who if (uid, gid) != (-1, -1)]),
            "target": chance.choice(["f", "../b", "nowhere", "a" * 200])}


def outcome_of(place, step):
    try:
        return CALLS[step["call"]](lambda name: f"{place}/{name}", step)
    except OSError as error:
        return errno.errorcode[error.errno]


def look(place):
    """What everybody may see of each name."""
    seen = {}
    for above, directories, files in os.walk(place):
        for name in directories + files:
            path = f"{above}/{name}"
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            told = [oct(status.st_mode), status.st_uid, status.st_gid]
            if kind != stat.S_IFDIR:
                told += [status.st_nlink, status.st_size, int(status.st_mtime) == 2]
            if kind == stat.S_IFLNK:
                told.append(os.readlink(path))
            seen[os.path.relpath(path, place)] = told
    return seen


def work(places, seed):
    chance = random.Random(seed)
    for number in range(BATCHES):
        steps = [draw(chance) for _ in range(BATCH)]
        who, umask, groups = chance.choice(USERS), chance.choice((0, 0o022, 0o077)), (TEAM,) if chance.random() < 0.5 else ()
        told = [as_user(who, umask, lambda place: [outcome_of(place, step) for step in steps], place, groups=groups) for place in places]
        for step, ours, theirs in zip(steps, *told):
            assert ours == theirs, f"{ours} instead of {theirs}: seed {seed}, batch {number}, user {who}, umask {umask:o}, groups {groups}: {step}"


def node_of_all(cluster):
    """A mount in which each user may make names."""
    node = cluster.node("a", start=False)
    os.chmod(node.cache, 0o1777)
    for above in (cluster.directory, node.cache.parent):
        os.chmod(above, 0o755)
    return node.start(*cluster.options())


@pytest.mark.parametrize("seed", range(6))
def test_each_call_ends_as_on_a_local_disk(cluster, seed):
    node = node_of_all(cluster)
    places = [node.cache / "own", cluster.directory / "disk"]
    for place in places:
        for name, mode, uid, gid in (("", 0o777, ROOT, ROOT), ("a", 0o1777, ROOT, ROOT), ("a/c", 0o755, ONE, ONE), ("b", 0o2777, TWO, TEAM)):
            (place / name).mkdir()
            os.chown(place / name, uid, gid)
            os.chmod(place / name, mode)
    work(places, seed)
    expected = look(places[1])
    assert look(places[0]) == expected and len(expected) > 8, expected
    node.kill_worker()
    assert look(places[0]) == expected, "another worker"
    node.unmount()
    remount(node, cluster)
    assert look(places[0]) == expected, "another mount"
    own = node.store.stat()
    assert own.st_uid != ROOT, "the worker's user"
    for above, directories, files in os.walk(node.store / "files/view"):
        for name in directories + files:
            status = os.lstat(f"{above}/{name}")
            assert (status.st_uid, status.st_gid) == (own.st_uid, own.st_gid) and not status.st_mode & 0o7077, (above, name, status)
            assert stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode), (above, name)


@pytest.mark.parametrize("name", ["owner", "specials", "sealed", "makers"])
def test_nobody_says_himself_whose_a_file_is(cluster, name):
    node = node_of_all(cluster)
    path = node.cache / "own"

    def attempt():
        path.write_text("mine")
        errors = []
        for call in (lambda: os.setxattr(path, f"user.inductorfs.{name}", b"0 0 104755"),
                     lambda: os.removexattr(path, f"user.inductorfs.{name}"), lambda: os.getxattr(path, f"user.inductorfs.{name}")):
            try:
                call()
                errors.append(None)
            except OSError as error:
                errors.append(error.errno)
        return errors

    assert as_user(ONE, 0o022, attempt) == [errno.EPERM, errno.EPERM, errno.ENODATA]
    status = path.stat()
    assert (status.st_uid, status.st_mode) == (ONE, stat.S_IFREG | 0o644)


def test_nobody_makes_a_device(cluster):
    node = cluster.node("a")
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        with pytest.raises(PermissionError):
            os.mknod(node.cache / "device", kind | 0o600, os.makedev(1, 3))
    assert not os.path.lexists(node.cache / "device")

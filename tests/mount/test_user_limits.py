# SPDX-License-Identifier: Apache-2.0
"""What a user may have at most of private bytes and of files: --user-bytes and --user-files, in place of the quotas of the disk, to which
all is the daemon's. One user at a limit is told EDQUOT, and nobody else notices."""
import errno
import os
import random
import stat

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import remount
from inductorfs_testing.processes import wait_until
from inductorfs_testing.users import as_user

pytestmark = pytest.mark.usefixtures("root")
ONE, TWO = 1000, 1001
BLOCK = 4096
BYTES, FILES = 64 * BLOCK, 20
LIMITS = ("--user-bytes", str(BYTES), "--user-files", str(FILES))


def mounted(cluster, *options):
    node = cluster.node("a", start=False)
    os.chmod(node.cache, 0o1777)
    for above in (cluster.directory, node.cache.parent):
        os.chmod(above, 0o755)
    return node.start(*cluster.options(*options))


@pytest.fixture
def node(cluster):
    return mounted(cluster, *LIMITS)


def attempt(call, *arguments):
    try:
        call(*arguments)
        return None
    except OSError as error:
        return errno.errorcode[error.errno]


def write(path, size, mode="wb"):
    with open(path, mode, buffering=0) as file:
        file.write(b"x" * size)


def users(node):
    """Of ordinary users, when all is counted: {uid: (bytes, files)}."""
    def counted():
        files = node.status()["file_system"]
        return files if files["users_known"] else None
    found = wait_until(counted, what="all files to be counted")
    return {one["user"]: (one["bytes"], one["files"]) for one in found["users"] if one["user"] != 0}


def walked(place):
    """The same by a walk of a mount without artefacts: each name, and the bytes of each inode once, in whole blocks."""
    seen, sums = set(), {}
    for above, directories, files in os.walk(place):
        for name in directories + files:
            status = os.lstat(f"{above}/{name}")
            size = -(-status.st_size // BLOCK) * BLOCK if stat.S_ISREG(status.st_mode) and status.st_ino not in seen else 0
            seen.add(status.st_ino)
            before = sums.get(status.st_uid, (0, 0))
            sums[status.st_uid] = (before[0] + size, before[1] + 1)
    return {uid: both for uid, both in sums.items() if uid != 0}


def test_one_user_at_the_limit_of_bytes(node):
    path = node.cache / "one"
    assert as_user(ONE, 0o022, lambda: attempt(write, path, BYTES)) is None
    more = node.cache / "more"
    assert as_user(ONE, 0o022, lambda: [attempt(write, more, 1), attempt(os.truncate, path, BYTES + 1), attempt(write, path, 1, "ab")]) == ["EDQUOT"] * 3
    assert as_user(ONE, 0o022, lambda: attempt(lambda: os.posix_fallocate(os.open(path, os.O_WRONLY), 0, BYTES + 1))) == "EDQUOT"
    assert as_user(ONE, 0o022, lambda: attempt(write, path, BYTES, "r+b")) is None, "what is there may be changed"
    assert as_user(TWO, 0o022, lambda: attempt(write, node.cache / "two", BYTES)) is None
    assert attempt(write, node.cache / "of root", 2 * BYTES) is None
    assert users(node) == {ONE: (BYTES, 2), TWO: (BYTES, 1)}
    as_user(ONE, 0o022, lambda: os.truncate(path, BYTES - BLOCK))
    assert as_user(ONE, 0o022, lambda: attempt(write, more, BLOCK)) is None
    with open(path):  # a file that somebody has open takes its room until it is closed
        as_user(ONE, 0o022, lambda: os.unlink(path))
        assert as_user(ONE, 0o022, lambda: attempt(write, node.cache / "again", 1)) == "EDQUOT"
    wait_until(lambda: as_user(ONE, 0o022, lambda: attempt(write, node.cache / "again", 1)) is None, what="room again")
    assert users(node)[ONE] == walked(node.cache)[ONE] == (2 * BLOCK, 2)


def test_one_user_at_the_limit_of_files(node):
    def fill():
        mine = node.cache / "mine"
        mine.mkdir()
        for number in range(FILES - 3):
            write(mine / str(number), 0)
        os.symlink("nowhere", mine / "link")
        os.mkfifo(mine / "fifo")
        calls = (lambda: write(mine / "one", 0), lambda: os.mkdir(mine / "one"), lambda: os.symlink("0", mine / "one"), lambda: os.mkfifo(mine / "one"),
                 lambda: os.link(mine / "0", mine / "one"))
        told = [attempt(call) for call in calls]
        return told, attempt(os.rename, mine / "1", mine / "2"), attempt(os.link, mine / "0", mine / "one")
    assert as_user(ONE, 0o022, fill) == (["EDQUOT"] * 5, None, None), "a rename over one is one less"
    assert as_user(TWO, 0o022, lambda: attempt(write, node.cache / "two", 0)) is None
    assert users(node) == walked(node.cache) == {ONE: (0, FILES), TWO: (0, 1)}
    assert not os.path.lexists(node.cache / "mine/1")


def test_who_owns_a_file_has_it(node):
    path = node.cache / "given"
    as_user(ONE, 0o022, lambda: write(path, 3 * BLOCK))
    os.link(path, node.cache / "other name")
    os.chown(path, TWO, TWO)
    assert users(node) == {TWO: (3 * BLOCK, 2)}, "each name takes a place"
    os.unlink(path)
    assert users(node) == {TWO: (3 * BLOCK, 1)}
    os.unlink(node.cache / "other name")
    wait_until(lambda: users(node) == {}, what="nobody to have anything")


def test_root_is_told_with_the_remedy(node):
    assert node.status()["warnings"] == []
    as_user(ONE, 0o022, lambda: attempt(write, node.cache / "one", BYTES + 1))
    status = node.status()
    (one,) = [one for one in status["file_system"]["users"] if one["user"] == ONE]
    assert one["refused"] == 1 and (status["file_system"]["user_bytes"], status["file_system"]["user_files"]) == (BYTES, FILES)
    (warning,) = status["warnings"]
    assert f"uid {ONE} " in warning and "--user-bytes" in warning and "Disk quota exceeded" in warning
    as_user(ONE, 0o022, lambda: attempt(write, node.cache / "one", BYTES + 1))
    assert node.log.read_text().count("view.over_limit") == 1, "once an hour for each user"
    shown = node.cli("status", node.cache).out
    assert f"uid {ONE}: 0 B of 256.0 KiB, 1 of 20 files" in shown, shown
    assert as_user(TWO, 0o022, lambda: [one["user"] for one in node.status()["file_system"]["users"]]) == []


def test_without_limits_nobody_is_refused(cluster):
    node = mounted(cluster, "--user-bytes", "0", "--user-files", "0")
    assert as_user(ONE, 0o022, lambda: attempt(write, node.cache / "one", 1)) is None
    assert as_user(ONE, 0o022, lambda: attempt(os.truncate, node.cache / "one", 1 << 42)) is None
    os.unlink(node.cache / "one")


def test_half_of_the_disk_and_a_million_files(cluster):
    files = cluster.quick("a").status()["file_system"]
    disk = os.statvfs(cluster.directory)
    assert (files["user_bytes"], files["user_files"]) == (disk.f_blocks // 2 * disk.f_frsize, 1_000_000)


STEPS = {
    "write": lambda at, chance: write(at(), chance.randrange(4 * BLOCK), chance.choice(("wb", "ab"))),
    "truncate": lambda at, chance: os.truncate(at(), chance.randrange(6 * BLOCK)),
    "mkdir": lambda at, chance: os.mkdir(at()),
    "symlink": lambda at, chance: os.symlink("target", at()),
    "link": lambda at, chance: os.link(at(), at(), follow_symlinks=False),
    "rename": lambda at, chance: os.rename(at(), at()),
    "unlink": lambda at, chance: os.unlink(at()),
    "rmdir": lambda at, chance: os.rmdir(at()),
    "chown": lambda at, chance: os.chown(at(), chance.choice((0, ONE, TWO)), -1, follow_symlinks=False),
}


@pytest.mark.parametrize("seed", range(3))
def test_the_figures_are_those_of_a_walk(cluster, node, seed):
    chance = random.Random(seed)
    for place, owner in (("", 0), ("a", ONE), ("b", TWO), ("a/c", ONE)):
        os.makedirs(node.cache / "own" / place)
        os.chown(node.cache / "own" / place, owner, owner)
        os.chmod(node.cache / "own" / place, 0o777)

    def at():
        return f"{node.cache}/own/{chance.choice(('', 'a/', 'b/', 'a/c/', 'd/', 'e/'))}{chance.choice('defghij')}"

    def work(steps):
        return [attempt(STEPS[step], at, chance) for step in steps]
    done = 0
    for round in range(12):
        chance.seed(f"{seed} {round}")
        told = as_user(chance.choice((0, ONE, TWO)), 0, work, [chance.choice(list(STEPS)) for _ in range(60)])
        done += told.count(None)
        wait_until(lambda: users(node) == walked(node.cache), what=f"the figures of a walk after round {round}: {users(node)}, {walked(node.cache)}")
    expected = walked(node.cache)
    assert expected and done > 100, "most of what was tried is refused for other reasons"
    node.kill_worker()
    assert users(node) == expected, "another worker"
    node.unmount()
    remount(node, cluster, *LIMITS)
    assert users(node) == expected == walked(node.cache), "another mount"


def test_what_is_shared_takes_a_file_and_no_bytes(cluster):
    node = mounted(cluster, *LIMITS, "--trust", "all")
    one, same, content = artefacts.code("one"), artefacts.code("same"), b"// code\n" * 2000
    for name in (one, same):
        (node.cache / name).parent.mkdir()
        os.chmod((node.cache / name).parent, 0o777)
    as_user(ONE, 0o022, lambda: artefacts.write_atomic(node.cache, one, content))
    node.sync()
    assert users(node) == {ONE: (0, 1)}
    as_user(ONE, 0o022, lambda: artefacts.write_atomic(node.cache, same, content))
    node.sync()
    assert users(node) == {ONE: (4 * BLOCK, 2)}, "the store has these bytes already, so that these are a second time on the disk"
    node.kill_worker()
    assert users(node) == {ONE: (4 * BLOCK, 2)}
    as_user(ONE, 0o022, lambda: write(node.cache / one, 1, "ab"))
    assert users(node) == {ONE: (8 * BLOCK, 2)}, "whoever writes to it has a copy"
    for name in (one, same):
        os.unlink(node.cache / name)
    wait_until(lambda: users(node) == {}, what="nobody to have anything")

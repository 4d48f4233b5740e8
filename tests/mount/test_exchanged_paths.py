# SPDX-License-Identifier: Apache-2.0
"""A user exchanges a directory of his for a link out of the mount, again and again, while he works in what was below it: nothing
happens outside of the mount, which root's process would do with root's rights. What is outside has the same path below his
directory. tests/vfs/moved_paths_test.cc has the exchanges that hit."""
import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest
from inductorfs_testing.bounds import NO_LANDLOCK, NO_TREE
from inductorfs_testing.taken_over import field_of
from inductorfs_testing.users import as_user, begin_as, result_of

pytestmark = pytest.mark.usefixtures("root")
NOBODY = 65534
SECONDS, FILES = 4, 50
WANTED, PATIENCE = 50, 60  # exchanges and steps; seconds that a busy machine has for them
EXCHANGE, AT_FDCWD, CLONE_NEWNS = 2, -100, 0x20000
LIBC = ctypes.CDLL(None, use_errno=True)


def prepare(own, victim):
    inner = own / "x" / str(victim)[1:]
    inner.mkdir(parents=True)
    (own / "mine").mkdir()
    (own / "s").symlink_to("/")


def goes_on(begin, done):
    return time.monotonic() < begin + (SECONDS if done > WANTED else PATIENCE)


def exchange(own):
    one, other, count = os.fsencode(own / "x"), os.fsencode(own / "s"), 0
    begin = time.monotonic()
    while goes_on(begin, count):
        count += LIBC.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE) == 0
    return count


def step(attack, inner, mine, number):
    name = f"file-{number % FILES}"
    if attack == "create":
        os.close(os.open(f"new-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755, dir_fd=inner))
    elif attack == "mkdir":
        os.mkdir(f"made-{number}", 0o777, dir_fd=inner)
    elif attack == "unlink":
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inner))
        os.unlink(name, dir_fd=inner)
    elif attack == "take":
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inner))
        os.rename(name, f"{name}-{number}", src_dir_fd=inner, dst_dir_fd=mine)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inner))
        os.chmod(name, 0o666, dir_fd=inner)
        os.utime(name, (5, 5), dir_fd=inner)


def work(attack, inner, mine, first):
    """As many steps as the time allows; their number."""
    number, done = first, 0
    begin = time.monotonic()
    while goes_on(begin, done):
        number += 2
        try:
            step(attack, inner, mine, number)
            done += 1
        except OSError:
            continue  # the daemon met the link; a lost race must be an error
    return done


def attack_below(own, victim, attack):
    """(exchanges, steps), by processes of the user."""
    as_user(NOBODY, 0o022, prepare, own, victim)
    inner = os.open(own / "x" / str(victim)[1:], os.O_RDONLY | os.O_DIRECTORY)
    mine = os.open(own / "mine", os.O_RDONLY | os.O_DIRECTORY)
    begun = [begin_as(NOBODY, 0o022, exchange, own)]
    begun += [begin_as(NOBODY, 0o022, work, attack, inner, mine, first) for first in (0, 1)]
    exchanges, *steps = [result_of(one) for one in begun]
    return exchanges, sum(steps)


def attack_from_namespace(own, victim, attack, shown):
    """The same where the mount is bound to another place, and neither its own nor the victim is there."""
    assert LIBC.unshare(CLONE_NEWNS) == 0
    for command in (["--make-rprivate", "/"], ["--bind", own, shown], ["-t", "tmpfs", "tmpfs", own.parent],
                    ["-t", "tmpfs", "tmpfs", victim]):
        subprocess.run(["mount", *command], check=True)
    return attack_below(shown, victim, attack)


def state_of(directory):
    return {item.name: (item.lstat().st_ino, item.lstat().st_mode, item.lstat().st_uid, item.lstat().st_mtime_ns, item.read_bytes())
            for item in sorted(directory.iterdir())}


def prepare_victim(cluster, node, tmp_path):
    """(the attacker's directory, what is attacked)"""
    for directory in (cluster.directory, node.root, tmp_path):
        directory.chmod(0o755)
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    for number in range(FILES):
        (victim / f"file-{number}").write_text(f"secret {number}")
        (victim / f"file-{number}").chmod(0o600)
    own = node.cache / "u"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    return own, victim


@pytest.mark.parametrize("attack", ["create", "mkdir", "unlink", "take", "change"])
@pytest.mark.parametrize("place", ["host", "namespace"])
def test_nothing_happens_outside_of_the_mount(cluster, node, tmp_path, attack, place):
    own, victim = prepare_victim(cluster, node, tmp_path)
    before = state_of(victim)

    if place == "host":
        exchanges, steps = attack_below(own, victim, attack)
    else:
        shown = cluster.directory / "shown"  # where the user may go
        shown.mkdir()
        exchanges, steps = as_user(0, 0o022, attack_from_namespace, own, victim, attack, shown)

    assert state_of(victim) == before
    taken = [path for path in (own / "mine").iterdir() if path.read_bytes()]
    assert not taken, "files of root's that were moved into the user's directory"
    assert exchanges > WANTED and steps > WANTED, "the attack was none"


@pytest.mark.parametrize("attack", ["create", "unlink", "take", "change"])
def test_no_link_of_a_users_is_one_in_the_store(cluster, tmp_path, attack):
    """So that even a worker that is root, follows links and is kept to no files is led nowhere."""
    node = cluster.node("a", start=False, environment={"INDUCTORFS_FAIL_POINT": "tree.unchecked=EIO"})
    node.enter = (*NO_LANDLOCK, *NO_TREE)
    cluster.directory.chmod(0o700)  # so that it stays root
    node.start(*cluster.options())
    own, victim = prepare_victim(cluster, node, tmp_path)
    assert field_of(Path(f"/proc/{node.worker()}/status").read_text(), "Uid").split() == ["0"] * 4
    before = state_of(victim)

    exchanges, steps = attack_below(own, victim, attack)

    assert state_of(victim) == before
    assert not [path for path in node.store.rglob("*") if path.is_symlink()]
    assert exchanges > WANTED and steps > WANTED, "the attack was none"

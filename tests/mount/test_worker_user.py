# SPDX-License-Identifier: Apache-2.0
"""Root's worker is a user who may do nothing, and its store is that user's."""
import ctypes
import os
import pty
import shlex
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, environments
from inductorfs_testing.compare import is_mounted
from inductorfs_testing.mounts import appears
from inductorfs_testing.places import program
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.twin import unused_name
from inductorfs_testing.users import as_user

pytestmark = pytest.mark.usefixtures("root")
NAME = unused_name(1, "one")
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438          # asm-generic/unistd.h
LINK_FD, UPGRADE = 5, 2    # include/inductorfs/supervisor/protocol.h: kLinkFd, Word::kUpgrade
MAGIC = 0x69667376         # src/supervisor/protocol.cc
ROOTS_OWN = "fingerprint.cache"
SOMEBODY = 12345


def user_of(pid):
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:")]
    (uid,) = set(map(int, line.split()[1:]))
    return uid


def owners(directory):
    return {path.lstat().st_uid for path in [directory, *directory.rglob("*")] if not path.name.startswith(ROOTS_OWN)}


def warnings(node):
    return node.status()["warnings"]


def end_worker(node):
    before = node.worker()
    os.kill(before, signal.SIGKILL)
    return wait_until(lambda: [pid for pid in node.daemons() if pid != before], what="another worker")[0]


def test_it_is_nobody_and_so_is_the_next_one(cluster):
    node = cluster.node("a")
    artefacts.write_atomic(node.cache, NAME, b"one")
    user = user_of(node.worker())
    assert user != 0 and not any("stays root" in warning for warning in warnings(node))
    assert user_of(end_worker(node)) == user
    assert (node.cache / NAME).read_bytes() == b"one"
    assert owners(node.store) == {user}
    assert (node.cache / NAME).stat().st_uid == 0, "whose a file is is data"


def test_a_store_of_roots_is_given_to_it_once(cluster):
    node = cluster.node("a")
    artefacts.write_atomic(node.cache, NAME, b"one")
    node.sync()
    user = user_of(node.worker())
    node.unmount()
    subprocess.run(["chown", "-R", "0:0", node.store], check=True, timeout=60)
    node.start()
    assert user_of(node.worker()) == user and owners(node.store) == {user}
    assert (node.cache / NAME).read_bytes() == b"one"


def test_where_it_may_not_go_it_stays_root_and_says_so(cluster):
    """Until the way is open; and then it is no way back, for root is not to read what another user can have made."""
    node = cluster.node("a", start=False)
    cluster.directory.chmod(0o700)
    node.start()
    assert user_of(node.worker()) == 0 and owners(node.store) == {0}
    (told,) = [warning for warning in warnings(node) if "stays root" in warning]
    assert "chmod o+x" in told and str(node.store) in told and "stays root" in node.log.read_text()
    artefacts.write_atomic(node.cache, NAME, b"one")
    node.unmount()
    cluster.directory.chmod(0o711)
    node.start()
    user = user_of(node.worker())
    assert user != 0 and owners(node.store) == {user}
    assert (node.cache / NAME).read_bytes() == b"one"
    node.unmount()
    cluster.directory.chmod(0o700)
    done = node.cli("mount", node.cache, "--store", node.store)
    assert done.code == 2 and "chmod o+x" in done.err and str(node.store) in done.err, done
    cluster.directory.chmod(0o711)
    node.start()
    assert (node.cache / NAME).read_bytes() == b"one"


def test_a_log_elsewhere_is_its_own_and_is_opened_anew(cluster):
    node = cluster.node("a")
    user = user_of(node.worker())
    assert node.log.stat().st_uid == user and node.log.parent.stat().st_uid == 0
    node.log.rename(node.root / "older.log")
    os.kill(node.worker(), signal.SIGHUP)
    wait_until(lambda: node.log.exists() and "mount.log_reopened ok=true" in node.log.read_text(), what="the new log")
    assert node.log.stat().st_uid == user


def test_it_has_no_program_run_with_roots_rights(cluster, tmp_path):
    """Whoever has the worker has its end of the socket to the supervisor, and may ask for an upgrade to any program."""
    node = cluster.node("a")
    fresh, told = node.root / "inductorfs-new", node.root / "told"
    fresh.write_text(f"#!/bin/sh\nid >{told}\n")
    fresh.chmod(0o755)
    os.chown(fresh, SOMEBODY, SOMEBODY)
    done = node.cli("upgrade", node.cache, "--program", fresh)
    assert done.code == 2 and "chown root" in done.err, done
    pidfd = os.pidfd_open(node.worker())
    number = LIBC.syscall(PIDFD_GETFD, pidfd, LINK_FD, 0)
    os.close(pidfd)
    assert number >= 0, os.strerror(ctypes.get_errno())
    with socket.socket(fileno=number) as link, open(fresh, "rb") as opened:
        socket.send_fds(link, [struct.pack("II", MAGIC, UPGRADE)], [opened.fileno()])
    before = node.worker()
    wait_until(lambda: "supervisor.program_refused" in node.log.read_text(), what="the refusal")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: [pid for pid in node.daemons() if pid != before], what="another worker")
    assert not told.exists()


def test_it_leads_root_nowhere_by_what_its_store_has(cluster):
    """Children of the examiner write what they know of packages there, the supervisor its lines of the log."""
    node = cluster.node("a", start=False)
    victims = [node.root / name for name in ("memory", "log")]
    for victim in victims:
        victim.write_text("root's")
        victim.chmod(0o600 if victim.name == "memory" else 0o666)  # what root's examiner writes, and what the store's owner may
    node.store.mkdir(exist_ok=True)
    remembered = node.store / ROOTS_OWN
    done = node.cli("mount", node.cache, "--store", node.store, "--writers", "all", "--no-also")
    assert done.code == 0, done
    wait_until(remembered.exists, what="what is remembered")
    remembered.unlink()
    remembered.symlink_to(victims[0])
    (node.store / "log").unlink()
    (node.store / "log").symlink_to(victims[1])
    end_worker(node)
    node.cli("unmount", node.cache)
    (node.store / "log").unlink()
    assert node.cli("mount", node.cache, "--store", node.store, "--writers", "all", "--no-also").code == 0
    wait_until(lambda: not remembered.is_symlink(), what="what is remembered, in a file of root's own")
    assert remembered.stat().st_uid == 0
    assert [victim.read_text() for victim in victims] == ["root's"] * 2
    node.cli("unmount", node.cache)


def test_a_repair_leaves_nothing_of_roots(cluster):
    node = cluster.node("a")
    artefacts.write_atomic(node.cache, NAME, b"one")
    user = user_of(node.worker())
    node.unmount()
    done = node.cli("check", "--store", node.store, "--repair")
    assert done.code == 0, done
    assert owners(node.store) == {user}
    node.start()
    assert (node.cache / NAME).read_bytes() == b"one"


def test_a_control_socket_that_somebody_removed_is_there_again(cluster):
    node = cluster.node("a")
    assert node.control_socket.stat().st_uid == 0
    node.control_socket.unlink()
    end_worker(node)
    wait_until(node.control_socket.exists, what="the socket")
    assert node.status()["takeover"]["restarts"] == 1
    wait_until(lambda: len(node.proxies()) == 1 and str(node.cache) in node.guest_hears({"op": "where"}), what="other users' way to it")
    node.unmount()
    assert not node.control_socket.exists() and not node.guests_socket.exists()


def test_users_share_as_before(cluster):
    """The names of an ordinary user come from a worker that is neither he nor root."""
    first, second = cluster.node("a", start=False), cluster.node("b", start=False)
    environments.bare(cluster.directory / "bare")
    for node in (first, second):
        node.cache.chmod(0o1777)
        node.start("--trust", "all", "--python", cluster.directory / "bare/bin/python")
    assert user_of(first.worker()) == user_of(second.worker()) != 0

    as_user(SOMEBODY, 0o022, artefacts.write_atomic, first.cache, NAME, b"mine")
    first.sync()
    appears(second.cache / NAME)
    assert (second.cache / NAME).read_bytes() == b"mine"
    assert (first.cache / NAME).stat().st_uid == SOMEBODY


def test_a_store_may_lie_behind_roots_link(cluster):
    node = cluster.node("a", start=False)
    real, link = cluster.directory / "real", node.root / "link"
    real.mkdir()
    link.symlink_to(real)
    node.store = link / "store"
    node.start()
    user = user_of(node.worker())
    assert user != 0 and owners(real / "store") == {user} and real.stat().st_uid == 0
    node.unmount()
    node.start()
    assert user_of(node.worker()) == user


@pytest.mark.parametrize("what", ["store", "log"])
def test_what_is_a_link_itself_is_given_to_nobody(cluster, what):
    """It may be exchanged, or lead on to what another user has made: the person is told to name the end."""
    node = cluster.node("a", start=False)
    victim = cluster.directory / "victim"
    if what == "store":
        victim.mkdir()
        node.store = node.root / "link"
        node.store.symlink_to(victim)
    else:
        victim.write_text("root's")
        way = node.root / "way"
        way.symlink_to(victim)
        node.log.symlink_to(way)
    node.start()
    assert user_of(node.worker()) == 0 and victim.stat().st_uid == 0
    (told,) = [warning for warning in warnings(node) if "stays root" in warning]
    assert "is a symbolic link: name the" in told


def test_a_log_in_a_directory_of_the_store_is_made(cluster):
    node = cluster.node("a", start=False)
    node.log = node.store / "logs" / "log"
    node.start()
    assert "mount.ready" in node.log.read_text() and node.log.stat().st_uid == user_of(node.worker()) != 0


def test_in_the_foreground_it_has_no_terminal(cluster):
    """Whoever has root's terminal types there what root's shell then does (TIOCSTI), and reads what root types."""
    node = cluster.node("a", start=False)
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execv(program(), [str(program()), "mount", str(node.cache), "--foreground", "--store", str(node.store), "--no-also"])
        finally:
            os._exit(127)
    try:
        worker = node.worker()
        wait_until(lambda: is_mounted(node.cache), 20, "the mount")
        assert Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[4] != "0", "the test has one"
        assert user_of(worker) != 0
        assert Path(f"/proc/{worker}/stat").read_text().rsplit(") ", 1)[1].split()[4] == "0", "tty_nr"
        opened = {fd: os.readlink(f"/proc/{worker}/fd/{fd}") for fd in (0, 1, 2)}
        assert opened[0] == "/dev/null" and all(place.startswith("/dev/pts/") for place in (opened[1], opened[2])), opened
        for fd in (1, 2):
            (flags,) = [line.split()[1] for line in Path(f"/proc/{worker}/fdinfo/{fd}").read_text().splitlines() if line.startswith("flags:")]
            assert int(flags, 8) & os.O_ACCMODE == os.O_WRONLY
        node.unmount()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, 30, "the end of the mount")
        os.close(terminal)


def test_in_a_chroot_it_sees_the_same_tree(cluster):
    """Whoever enters a mount namespace begins at its root, which is above that of a chroot."""
    node = cluster.node("a", start=False)
    around = node.root / "around"
    around.mkdir()
    mount = [program(), "mount", node.cache, "--store", node.store, "--log", node.store / "log", *cluster.options("--no-also")]
    shell = f"mount --rbind / {around} && exec chroot {around} {shlex.join(map(str, mount))}"
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", shell], env=node.env(), capture_output=True, text=True,
                          timeout=60, check=False)
    try:
        assert done.returncode == 0 and "stays root" not in done.stderr, done.stderr
        (worker,) = node.daemons()
        assert user_of(worker) != 0
        shown = os.listdir(f"/proc/{worker}/root")
        assert "etc" in shown and not {"home", "root", "run"} & set(shown), shown
    finally:
        node.kill_daemon()


def test_a_new_store_below_a_closed_directory_is_made_at_the_first_mount(place):
    """Its worker is root, who opens the log in it himself; nothing may be in the store before it is one."""
    closed = place.root / "closed"
    closed.mkdir(mode=0o700)
    done = run([program(), "mount", place.cache, "--store", closed / "store", "--no-also"], place.env(), 30)
    assert done.code == 0, done.err
    assert {"format", "log"} <= set(os.listdir(closed / "store"))
    place.unmount()

# SPDX-License-Identifier: Apache-2.0
"""The process that mounts and unmounts for the worker: the worker has no right to, and wins nothing by lying to it."""
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, certificates
from inductorfs_testing.compare import is_mounted
from inductorfs_testing.mounts import QuickCluster, appears
from inductorfs_testing.node import files_of
from inductorfs_testing.places import program
from inductorfs_testing.ports import free_port
from inductorfs_testing.processes import PATIENCE, Failed, wait_until
from inductorfs_testing.redis_server import RedisServer
from inductorfs_testing.twin import unused_name

pytestmark = pytest.mark.usefixtures("root")
# linux/capability.h
CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, SYS_PTRACE, SYS_ADMIN = 0, 1, 2, 3, 4, 6, 7, 19, 21
OF_MOUNTER = (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, SYS_PTRACE, SYS_ADMIN)
OF_WORKER = ()
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438  # asm-generic/unistd.h
MOUNTER_FD = 15    # include/inductorfs/supervisor/protocol.h: kMounterFd


def mount(cluster, *options):
    """With two further places, one in directories that are to be made."""
    node = cluster.node("a", start=False)
    places = [cluster.directory / "made" / "on the way", cluster.directory / "place"]
    also = [word for place in places for word in ("--also", f"{place.name.split()[0]}={place}")]
    return node.start(*also, *options), places


def check_gone(node, places):
    wait_until(lambda: not node.processes(), 20, "the end of all processes")
    assert not is_mounted(node.cache) and not any(map(is_mounted, places))
    assert all(os.listdir(place) == [] for place in places), "what was made for them stays"


def unmount(node, *options):
    done = node.cli("unmount", *options, node.cache)
    assert done.code == 0, done
    return done


def mounter(node, but=()):
    return wait_until(lambda: [pid for pid in node.mounters() if pid not in but], what="a mounter")[0]


def rights_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


@pytest.mark.parametrize("who", ["worker", "mounter"])
def test_each_has_the_rights_that_it_needs_and_no_others(cluster, who):
    node, places = mount(cluster)
    pid, rights = (node.worker(), OF_WORKER) if who == "worker" else (mounter(node), OF_MOUNTER)
    own = int(rights_of("self")["CapEff"], 16)
    for thread in os.listdir(f"/proc/{pid}/task"):
        status = rights_of(f"{pid}/task/{thread}")
        for kind in ("CapPrm", "CapEff"):
            assert int(status[kind], 16) == own & sum(1 << number for number in rights), (thread, status[kind])
        assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
        assert status["NoNewPrivs"] == "1"
    unmount(node)
    check_gone(node, places)


def test_a_worker_sees_programs_where_proc_hides_them(cluster):
    node = cluster.node("a", start=False)
    script = '''
        mount -t proc -o hidepid=2,gid=4711 proc /proc && "$0" mount "$1" --store "$2" --no-also && chmod 1777 "$1" || exit 1
        setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'mkdir "$0"/of && echo x > "$0"/of/file' "$1"
        echo "written=$?" $(grep -h CapEff /proc/$(pgrep -f "^inductorfs worker $1")/status)
        "$0" unmount "$1"'''
    node.cache.mkdir(parents=True, exist_ok=True)
    for folder in (node.cache, node.root, cluster.directory):
        folder.chmod(0o755)
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, program(), node.cache,
                           cluster.directory / "hidden"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    assert f"written=0 CapEff: {0:016x}\n" in done.stdout, done
    assert "host.job_unknown" not in (cluster.directory / "hidden" / "log").read_text()


def test_it_reads_the_secrets_that_a_worker_may_not(tmp_path):
    """Files of mode 0 are read by whoever has CAP_DAC_OVERRIDE alone. A certificate is renewed under the mount."""
    authority, next_authority = (certificates.Authority(tmp_path / name) for name in ("authority", "next"))
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    port = free_port()

    def start_server(signer):
        certificate, key = signer.sign("server", "IP:127.0.0.1")
        return RedisServer(settings=("--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file",
                                     signer.ca_file))

    def put(source, name):
        """As cert-manager: another file in its place."""
        fresh = tmp_path / "fresh"
        fresh.write_bytes(source.read_bytes())
        fresh.chmod(0)
        fresh.rename(tmp_path / name)

    def give(signer):
        certificate, key = signer.sign("client", "DNS:client")
        for source, name in ((signer.ca_file, "ca"), (certificate, "certificate"), (key, "key")):
            put(source, name)

    give(authority)
    put(password, "password")
    options = [word for option, name in (("--ca-file", "ca"), ("--cert-file", "certificate"), ("--key-file", "key"), ("--password-file", "password"))
               for word in (option, tmp_path / name)]
    with QuickCluster() as cluster:
        node, other = (cluster.node(name, start=False, remote=f"rediss://127.0.0.1:{port}") for name in "ab")
        with start_server(authority) as server:
            server.command("CONFIG", "SET", "requirepass", "hunter2")
            node.start(*cluster.options(*options))
            wait_until(lambda: node.status()["remote"]["reachable"], 20, "the server")
        with start_server(next_authority) as server:
            server.command("CONFIG", "SET", "requirepass", "hunter2")
            wait_until(lambda: not node.status()["remote"]["reachable"], 20 * PATIENCE, "a server that is not trusted")
            give(next_authority)
            wait_until(lambda: node.status()["remote"]["reachable"], 60 * PATIENCE, "the server with the next certificate")
            (tmp_path / "key").unlink()
            told = f'mount.secret_not_read file={tmp_path / "key"} why="it does not exist" action="what it had before is used"'
            wait_until(lambda: told in node.log.read_text(), 30 * PATIENCE, "a word in the log")
            # The next worker has no more than the files: it serves without the remote until they are there.
            (tmp_path / "password").unlink()
            before = node.worker()
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: node.daemons() not in ([], [before]), 20 * PATIENCE, "the next worker")
            name = unused_name(1, "one")
            artefacts.write_atomic(node.cache, name, b"queued without the remote")
            wait_until(lambda: "password: it does not exist" in node.status()["remote"]["last_error"], 30 * PATIENCE, "why the remote is away")
            give(next_authority)
            fresh = tmp_path / "fresh"
            fresh.write_text("hunter2\n")
            put(fresh, "password")
            wait_until(lambda: node.status()["remote"]["reachable"], 60 * PATIENCE, "the server, when the files are there")
            node.sync(60)
            other.start(*cluster.options(*options))
            assert appears(other.cache / name).read_bytes() == b"queued without the remote"
            other.unmount()
        node.unmount()


def test_a_mounter_has_nothing_of_the_store_and_the_cluster(cluster):
    node, _ = mount(cluster)
    pid = mounter(node)

    def others():
        return [name for number, name in files_of(pid).items() if number > 2 and number != MOUNTER_FD]

    # Beside that it has the socket of a question while it answers one, as about the places of users after the mount.
    wait_until(lambda: others() == ["/memfd:inductorfs-mounted (deleted)"], what=f"it to have nothing else than {files_of(pid)}")
    assert not any(name.startswith("INDUCTORFS_") for name in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0"))
    node.unmount()


def test_one_that_is_killed_is_followed_by_another_one_that_knows_what_was_mounted(cluster):
    node, places = mount(cluster)
    killed = []
    for _ in range(2):
        killed.append(mounter(node, killed))
        os.kill(killed[-1], signal.SIGKILL)
    assert all(map(is_mounted, places))
    unmount(node)
    check_gone(node, places)
    wait_until(lambda: node.log.read_text().count("supervisor.companion_ended name=mounter") == 2, what="the log to tell of both ends")


def test_so_does_the_one_of_the_next_worker(cluster):
    node, places = mount(cluster)
    before = node.worker(), mounter(node)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: node.daemons() not in ([], [before[0]]), what="another worker")
    mounter(node, before)
    wait_until(lambda: json.loads(node.cli("status", "--json", node.cache).out or "{}").get("takeover", {}).get("restarts") == 1,
               what="it to serve")
    unmount(node)
    check_gone(node, places)


def test_one_that_stands_still_is_replaced(cluster):
    node, places = mount(cluster)
    os.kill(mounter(node), signal.SIGSTOP)
    assert unmount(node).seconds < 10 * PATIENCE
    check_gone(node, places)
    assert "mount.companion_replaced name=mounter" in node.log.read_text()


def test_a_mount_that_is_in_use_stays(cluster):
    node, places = mount(cluster)
    for place in (node.cache, places[1]):
        inside = os.open(place, os.O_RDONLY)
        try:
            done = node.cli("unmount", node.cache)
            assert done.code == 1 and f"pid {os.getpid()}" in done.err, done
        finally:
            os.close(inside)
    assert all(map(is_mounted, [node.cache, *places]))
    unmount(node)
    check_gone(node, places)


def test_when_no_mounter_answers_the_supervisor_has_the_mount_taken_down(cluster):
    """None is started before the worker has ended: whoever starts them stands still until then."""
    node, places = mount(cluster)
    supervisor, worker = node.supervisors()[0], node.worker()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for pid in node.mounters():
            os.kill(pid, signal.SIGKILL)
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: rights_of(worker)["State"].startswith("Z"), 45, "the end of the worker")
        assert "mount.unmount_failed" in node.log.read_text()
        assert all(map(is_mounted, [node.cache, *places]))
    finally:
        os.kill(supervisor, signal.SIGCONT)
    check_gone(node, places)


def test_further_places_keep_the_set_group_id_bit_of_the_mountpoint(cluster):
    node = cluster.node("a", start=False)
    node.cache.chmod(0o2755)
    node.start("--also", f"torch={cluster.directory / 'place'}")
    assert (node.cache / "torch").stat().st_mode & 0o7777 == 0o2755
    node.unmount()


class TakenOver:
    """Whoever has the worker has its end of the socket to the mounter."""

    def __init__(self, node):
        pidfd = os.pidfd_open(node.worker())
        number = LIBC.syscall(PIDFD_GETFD, pidfd, MOUNTER_FD, 0)
        os.close(pidfd)
        if number < 0:
            raise Failed(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
        self._socket = socket.socket(fileno=number)

    def close(self):
        self._socket.close()

    def say(self, message, *descriptors):
        """True: it was taken by the kernel."""
        try:
            socket.send_fds(self._socket, [message], list(descriptors), socket.MSG_DONTWAIT)
        except (BlockingIOError, BrokenPipeError):
            return False
        return True

    def ask(self, task, request="", further=None, ask=5, pid=0):
        """The connection of a question, as a worker asks it."""
        ours, theirs = socket.socketpair()
        with theirs:
            question = json.dumps({"ask": ask, "pid": pid, "identity": {"start": 0, "stack": 0, "code": 0}, "facet": "torch", "held": 0, "task": task,
                                   "request": request}).encode()
            assert self.say(question, theirs.fileno(), *([] if further is None else [further.fileno()]))
        ours.settimeout(20)
        return ours


def said(connection):
    with connection:
        text = b""
        while piece := connection.recv(65536):
            text += piece
    return text.decode().splitlines()


def test_a_worker_that_lies_wins_nothing(cluster):
    node, places = mount(cluster)
    other = cluster.node("b", start=False).start()
    first = mounter(node)
    with contextlib.closing(TakenOver(node)) as liar:
        with open("/dev/null", "rb") as null, socket.socket() as net:
            for message in (b"", b"null", b"{}", b"[" * 10000, b"\xff" * 100, b'{"ask":5}', json.dumps({"ask": 5, "task": "../leave"}).encode()):
                for descriptors in ((), (null.fileno(),), (net.fileno(), null.fileno()), (0, 1)):
                    liar.say(message, *descriptors)
        # Words that there are not, and requests that would be paths.
        for task, request in (("umount", ""), ("/usr/bin/id", ""), ("unmount", str(other.cache)), ("unmount", "../../.."), ("look", "")):
            connection = liar.ask(task, request)
            if task == "unmount":  # the words say nothing but whether it is in a hurry
                with open(node.cache / "held", "w", encoding="utf-8"):
                    assert "is in use by" in said(connection)[1]
            else:
                assert said(connection) == ["null", "null"]
        # It looks at nobody: that is the examiner's.
        for ask in range(5):
            assert set(said(liar.ask("", ask=ask, pid=os.getpid()))) <= {"null"}
        # It cannot mount a second time, and what it is told to mount on is a mount.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            connection = liar.ask("mount", str(other.cache), theirs)
            theirs.close()
            ours.settimeout(20)
            while b"is mounted already" not in (answer := ours.recv(65536)):
                assert answer, "the end without an answer"
            said(connection)
        for _ in range(300):
            if not liar.say(b'{"ask":5}'):
                break
    assert all(map(is_mounted, [node.cache, *places, other.cache])) and node.mounters() == [first]
    unmount(node)
    check_gone(node, places)
    assert is_mounted(other.cache)
    other.unmount()


def test_a_worker_takes_no_place_of_another_mount_away(cluster):
    node, places = mount(cluster)
    other, theirs = cluster.node("b", start=False), cluster.directory / "of the other"
    other.start("--also", f"torch={theirs}")
    with contextlib.closing(TakenOver(node)) as liar:
        assert len(said(liar.ask("leave"))) == 2
    wait_until(lambda: not is_mounted(node.cache), what="the end of its own mount")
    assert is_mounted(theirs)
    # Nor does whoever mounts next: that mount lives.
    cluster.quick("c").unmount()
    assert is_mounted(theirs)
    check_gone(node, places)
    other.unmount()
    assert not is_mounted(theirs)


def test_one_that_is_started_by_hand_does_nothing(cluster):
    done = cluster.node("a", start=False).cli("mounter", "/mnt", seconds=20)
    assert done.code == 1 and "is started by inductorfs mount" in done.err, done

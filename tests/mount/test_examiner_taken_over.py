# SPDX-License-Identifier: Apache-2.0
"""Whoever has taken over a process of the examiner's, by what it is shown of a program, writes nothing, starts nothing and speaks to
nobody; one that reads packages opens what their user may open, and nothing else. The examiner and the mounter have no secret."""
import contextlib
import errno
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from inductorfs_testing import environments, mounts
from inductorfs_testing.attempts import NAME, address_of, kernel, loader, namespaces, processes, users, whole_host
from inductorfs_testing.environments import Writer
from inductorfs_testing.fixtures import lack
from inductorfs_testing.hung_files import HOLD_OPENS, hung_files
from inductorfs_testing.mounts import QuickCluster
from inductorfs_testing.node import files_of
from inductorfs_testing.processes import PATIENCE, Failed, wait_until
from inductorfs_testing.redis_server import RedisServer
from inductorfs_testing.taken_over import (CREATE, HERE, LIBC, READ, WRITE, Attempt, field_of, inside, landlock, library, not_refused, one, opening,
                                           quoted)
from inductorfs_testing.twin import describe

USER, OTHER = 65534, 54322
# linux/capability.h, of who has a package read: DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE, KILL, SETGID, SETUID
OF_READING = 1 << 1 | 1 << 2 | 1 << 19 | 1 << 5 | 1 << 6 | 1 << 7
OPENAT = {"x86_64": "257 ", "aarch64": "56 "}[platform.machine()]
MIB = 1 << 20
KEY = 0x1FD00000 + os.getpid() % 0x10000  # of System V's
PLACES = ("/", "/etc", "/tmp", "/var/tmp", "/run", "/dev/shm", "/root")
# A program with so much mapped that to look at it takes a while. For each line it maps more, and asks for a name. `root`: it has that one,
# in a mount namespace of its own.
CROWD = """
import ctypes, os, sys
cache, user, root = sys.argv[1:]
libc, pages = ctypes.CDLL(None), 50_000
at = os.open(cache, os.O_PATH)
if root:
    assert libc.unshare(0x20000) == 0
    os.chroot(root)
os.setgroups([]); os.setgid(int(user)); os.setuid(int(user))
libc.mmap.restype = ctypes.c_void_p
def mapped(size):
    return libc.mmap(None, ctypes.c_size_t(size), 1, 0x22, -1, ctypes.c_long(0))
start = mapped(4096 * pages)
for page in range(0, pages, 2):
    libc.mprotect(ctypes.c_void_p(start + 4096 * page), ctypes.c_size_t(4096), 0)
for number, line in enumerate(sys.stdin):
    mapped(4096)
    try: os.stat(f"fxgraph/{number}", dir_fd=at)
    except OSError: pass
    print("asked", flush=True)
"""
IDLE = "import ctypes, signal, sys\nctypes.CDLL(None).prctl(4, int(sys.argv[1]))\nprint('ready', flush=True)\nwhile True: signal.pause()"


def status_of(pid):
    """Empty when it has ended, or is to be waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{pid}/status").read_text()
        return "" if field_of(text, "State").startswith(("Z", "X")) else text
    return ""


def ended(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not status_of(pid), what=f"the end of process {pid}")


class Crowd:
    """A user's program that is looked at."""

    def __init__(self, scene, root=""):
        self._scene, self._node = scene, scene.node
        self._child = subprocess.Popen([sys.executable, "-c", CROWD, scene.node.cache, str(USER), root], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._asked, self.pid = False, self._child.pid

    def _ask(self):
        """Again, when it was answered."""
        os.set_blocking(self._child.stdout.fileno(), False)
        if self._child.stdout.read() or not self._asked:
            self._child.stdin.write(b"\n")
            self._child.stdin.flush()
            self._asked = True

    def _stopped(self):
        self._ask()
        for pid in self._node.examiner_children():
            if pid == self._scene.still:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                wait_until(lambda: (status_of(pid) or "T (").count("T ("), what="a stop")  # noqa: B023
                status = status_of(pid)
                # The examiner's filter, and its own: from there on it parses what it has open.
                if status and field_of(status, "Seccomp_filters") == "2" and f"/proc/{self.pid}/maps" in files_of(pid).values():
                    return pid
                os.kill(pid, signal.SIGCONT)
        return None

    @contextlib.contextmanager
    def looked_at(self):
        """The number of a process that looks, and stands still."""
        pid = wait_until(self._stopped, 120, "a process that looks, under its filter", pause=0)
        try:
            yield pid
        finally:
            ended(pid)

    def end(self):
        self._child.kill()
        self._child.communicate()


class Scene:
    """A mount of root's, processes of two users, and files of the host."""

    def __init__(self, cluster):
        self.cluster = cluster
        cluster.directory.chmod(0o755)
        self.packages = environments.make(cluster.directory / "environment")
        self.node = cluster.node("a", start=False)
        self.node.cache.chmod(0o1777)
        self.node.start("--writers", "learned", "--trust", "all", *mounts.QUICK)
        self.others = {"worker": self.node.worker(), "supervisor": self.node.supervisors()[0], "examiner": self.node.examiners()[0],
                       "mounter": self.node.mounters()[0], "messenger": self.node.messengers()[0]}
        self.open_tree = cluster.directory / "canary"
        self.canary = self.open_tree / "file"
        self.still = 0  # a process that looks, and was stopped before all others
        self.secrets = {name: cluster.directory / name for name in ("of root", "of another", "of the user")}
        self.remembered = {user: f"{user} {os.urandom(8).hex()}" for user in (0, OTHER, USER)}

    def _make_files(self):
        for directory in (self.open_tree, self.open_tree / "below"):
            directory.mkdir()
            directory.chmod(0o777)
        (self.open_tree / "removable").write_text("canary")
        self.canary.write_text("canary")
        self.canary.chmod(0o666)
        for user, path in zip((0, OTHER, USER), self.secrets.values(), strict=True):
            path.write_text("secret")
            path.chmod(0o600)
            os.chown(path, user, user)

    def remember(self):
        """As the readers of three users' packages have. One that was before may write down what it has learned."""
        wait_until(lambda: not set(self.node.examiner_children()) - {self.still}, 60, "the end of those who read")
        kept = {f"sha256 /{name}": {"manifest": "m", "value": "v", "owner": user} for user, name in self.remembered.items()}
        file = self.cluster.directory / "remembered"
        file.write_text(json.dumps({"format": 1, "kept": kept}))
        file.replace(self.node.store / "fingerprint.cache")

    @contextlib.contextmanager
    def _idle(self, user, dumpable):
        with subprocess.Popen([sys.executable, "-c", IDLE, str(dumpable)], stdout=subprocess.PIPE, user=user, group=user, extra_groups=[]) as child:
            try:
                assert child.stdout.readline() == b"ready\n"
                yield child
            finally:
                child.kill()

    @contextlib.contextmanager
    def things(self):
        self._make_files()
        self.crowd, waiting = Crowd(self), Crowd(self)
        with socket.socket(socket.AF_UNIX) as self.listener, self._idle(USER, 0) as self.peer, self._idle(OTHER, 1) as stranger:
            self.others["another user's"] = stranger.pid
            self.listener.bind(str(self.open_tree / "socket"))
            self.listener.listen()
            (self.open_tree / "socket").chmod(0o777)
            self.before = self.outside()
            try:
                with waiting.looked_at() as self.still:
                    yield self
            finally:
                self.crowd.end()
                waiting.end()
                for path in self.left():
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
                while os.path.ismount(self.open_tree / "below"):
                    subprocess.run(["umount", "-l", self.open_tree / "below"], check=True)

    def left(self):
        places = (*PLACES, self.open_tree, self.open_tree / "below", self.node.store, self.node.cache, self.cluster.directory)
        return [path for place in places for path in Path(place).glob(NAME)]

    def outside(self):
        return {str(path): describe(path) for path in [self.open_tree, *self.open_tree.rglob("*"), *self.secrets.values(), self.node.store]}

    @contextlib.contextmanager
    def looking(self, root=""):
        crowd = Crowd(self, root) if root else self.crowd
        try:
            with crowd.looked_at() as pid:
                yield pid
        finally:
            if root:
                crowd.end()

    @contextlib.contextmanager
    def reading(self, change=""):
        """The number of a process that reads a package of the user's, and waits for one of its files. `change`: see Writer, in a
        mount namespace of its own."""
        version, room = self.packages / "torch/version.py", self.cluster.directory / f"room {time.monotonic_ns()}"
        (room / "source").mkdir(parents=True)
        (room / "source" / version.name).write_text(version.read_text())
        with hung_files(room / "source", room / "hung", how=[HOLD_OPENS]):
            subprocess.run(["mount", "--bind", room / "hung" / version.name, version], check=True)
            try:
                with Writer(self.node.cache, self.packages, change, USER, enter=["unshare", "--mount"] if change else ()) as writer:
                    writer.begin_to_write(f"print({time.monotonic_ns()})")
                    (pid,) = wait_until(self._readers_that_wait, 120, "a process that reads a package")
                    try:
                        yield pid
                    finally:
                        ended(pid)
            finally:
                subprocess.run(["umount", "-l", version], check=True)

    def _readers_that_wait(self):
        looking, found = self.node.examiner_children(), []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                is_reader = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")[1:2] == [b"package-facts"]
                if is_reader and int(field_of(status_of(entry), "PPid")) in looking and Path(f"/proc/{entry}/syscall").read_text().startswith(OPENAT):
                    found.append(int(entry))
        return found


@pytest.fixture(scope="module")
def scene():
    if os.geteuid() != 0:
        lack("this test changes users, namespaces or disks: root only")
    with QuickCluster() as cluster, Scene(cluster).things() as made:
        yield made


def writes(scene):
    store, canary = scene.node.store, scene.canary
    for path in (canary, *scene.secrets.values(), store / "lock", store / "fingerprint.cache", "/etc/hosts", "/etc/passwd", "/etc/shadow", library(), "/bin/sh",
                 "/dev/null", "/dev/tty", "/dev/mem", "/dev/fuse", "/proc/self/mem", "/proc/self/exe", "/proc/self/oom_score_adj", "/proc/sysrq-trigger",
                 "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper", *(f"/proc/{pid}/mem" for pid in scene.others.values())):
        yield opening(path, WRITE)  # of these nothing is written, nor made shorter, where it is allowed
        yield opening(path, os.O_WRONLY)
        yield Attempt(f"openat2 {path}", [f"openat2 {HERE} {quoted(path)} words:{WRITE},0,0 24"])
    yield opening(canary, os.O_RDONLY | os.O_TRUNC)
    for directory in (scene.open_tree, scene.open_tree / "below", scene.cluster.directory, store, scene.node.cache, *PLACES):
        place = Path(directory) / NAME
        yield opening(place, CREATE)
        yield opening(directory, os.O_RDWR | os.O_TMPFILE)
        for call in (f"mkdirat {HERE} {quoted(place)} 0o777", f"symlinkat \"/etc/shadow\" {HERE} {quoted(place)}", f"mknodat {HERE} {quoted(place)} 0o10666 0",
                     f"linkat {HERE} {quoted(canary)} {HERE} {quoted(place)} 0", f"renameat2 {HERE} {quoted(canary)} {HERE} {quoted(place)} 0"):
            yield one(call)
    for call in (f"unlinkat {HERE} {quoted(scene.open_tree / 'removable')} 0", f"fchmodat {HERE} {quoted(canary)} 0o600", f"fchownat {HERE} {quoted(canary)} 1 1 0"):
        yield one(call)
    yield Attempt("fchmod", [f"openat {HERE} {quoted(canary)} 0", "fchmod %0 0o600"])
    yield Attempt("ftruncate", [f"openat {HERE} {quoted(canary)} 0", f"{46 if platform.machine() == 'aarch64' else 77} %0 0"])


def programs(_):
    for path in ("/bin/sh", "/usr/bin/env", "/proc/self/exe", loader()):
        yield one(f"execve {quoted(path)} words:0 words:0")
        yield one(f"execveat {HERE} {quoted(path)} words:0 words:0 0")
    yield one("clone 17 0 0 0 0")
    yield one("clone 0x10f00 0 0 0 0")
    yield one("clone3 words:0,0,0,0,17,0,0,0 64")
    yield one('memfd_create "x" 0')
    yield one("memfd_secret 0")
    for protection in (5, 7):
        yield one(f"mmap 0 4096 {protection} 34 -1 0")
    yield Attempt("mprotect", ["mmap 0 4096 3 34 -1 0", "mprotect %0 4096 5"])
    yield Attempt("mmap of a file", [f"openat {HERE} {quoted(library())} 0", "mmap 0 4096 5 2 %0 0"])


def mounts_and_roots(scene):
    place = quoted(scene.open_tree / "below")
    for call in (f'mount "none" {place} "tmpfs" 0 0', f'mount "/" {place} 0 4096 0', f"umount2 {quoted(scene.node.cache)} 2", 'pivot_root "." "."', 'chroot "."', 'chdir "/"',
                 'fsopen "tmpfs" 0', f'fspick {HERE} "/" 0', f'open_tree {HERE} "/" 1', f'mount_setattr {HERE} "/" 0 words:0,4,0,0 32'):
        yield one(call)
    yield Attempt("setns", [f'openat {HERE} "/proc/1/ns/mnt" 0', "setns %0 0"])


def connections(scene):
    for domain in (1, 2, 10, 15, 16, 17, 21, 29, 30, 31, 38, 40, 44):
        for kind in (1, 2, 3, 5):
            yield one(f"socket {domain} {kind} 0")
    yield one("socketpair 1 1 0 @8")
    address = address_of(scene.open_tree / "socket")
    for number in range(16):
        yield one(f"connect {number} hex:{address.hex()} {len(address)}")
    yield one("listen 0 1")
    yield one("accept4 0 0 0 0")


def shared_memory(_):
    yield Attempt("shmget", ["shmget 0 4096 0o1600"], after=["shmctl %0 0 0"])
    for name in ("semget", "msgget"):
        yield one(f"{name} {KEY} 0 0")


GROUPS = [writes, programs, mounts_and_roots, connections, shared_memory, users, namespaces, processes, kernel, whole_host]


@pytest.mark.parametrize("who", ["looking", "reading"])
@pytest.mark.parametrize("groups", [GROUPS[:1], GROUPS[1:6], GROUPS[6:]], ids=lambda groups: "-".join(group.__name__ for group in groups))
def test_it_is_refused(scene, who, groups):
    with getattr(scene, who)() as pid:
        allowed = not_refused(pid, [attempt for group in groups for attempt in group(scene)])
    assert not allowed, "not refused:\n" + "\n".join(allowed)


@pytest.mark.parametrize("who", ["looking", "reading"])
def test_it_opens_what_its_user_may(scene, who):
    store, secrets = scene.node.store, dict(scene.secrets)
    mine = secrets.pop("of the user")
    shut = [*secrets.values(), store, store / "lock", store / "fingerprint.cache", scene.node.log, "/etc/shadow", "/etc/gshadow", "/root", "/proc/kcore", "/proc/1/environ", "/proc/1/mem"]
    for pid in (*scene.others.values(), scene.peer.pid):
        shut += [f"/proc/{pid}/{name}" for name in ("environ", "maps", "mem", "fd", "cwd/.", "root/.", "pagemap", "ns/mnt")]
    with getattr(scene, who)() as pid:
        regain = [f"capset words:0x20080522 words:{OF_READING << 32 | OF_READING},0,0", "setfsuid 0", "setfsgid 0"]
        allowed = not_refused(pid, [Attempt("open as root", [*regain, f'openat {HERE} "/etc/shadow" 0']), *map(opening, shut),
                                    opening(mine, what="may open"), opening("/etc/hosts", what="may open")])
    wrong = [line for line in allowed if not line.startswith("may open")]
    assert not wrong, "not refused:\n" + "\n".join(wrong)
    assert len(allowed) == 2, "the files of its user, or it reads nothing"


def test_one_that_reads_in_another_root_stays_there(scene):
    """As of a program in a container: what its user could open on the host, whatever way is gone."""
    if landlock() < 1:
        lack("a kernel with Landlock")
    outside = [scene.secrets["of the user"], scene.canary, "/etc/hosts", "/", "/proc/self/status", library()]
    with scene.reading("chroot") as pid:
        (root,) = [number for number, name in files_of(pid).items() if name == str(scene.packages)]
        attempts = [*map(opening, outside), *[opening(f"{'../' * 24}{str(path)[1:]}", at=root) for path in outside], opening("torch/__init__.py", at=root, what="may open")]
        allowed = not_refused(pid, attempts)
    wrong = [line for line in allowed if not line.startswith("may open")]
    assert not wrong, "not refused:\n" + "\n".join(wrong)
    assert len(allowed) == 1, "the files of its root, or it reads no package"


def test_one_that_looks_into_another_root_stays_there(scene):
    if landlock() < 1:
        lack("a kernel with Landlock")
    outside = [scene.secrets["of the user"], scene.canary, "/etc/hosts", "/", "/proc/self/status", library()]
    with scene.looking(str(scene.packages)) as pid:
        allowed = not_refused(pid, [*map(opening, outside), opening(scene.packages / "torch/__init__.py", what="may open")])
    assert [line.split()[0] for line in allowed] == ["may"], "not refused, or not of its root:\n" + "\n".join(allowed)


@pytest.mark.parametrize("who", ["looking", "reading"])
def test_it_is_its_user(scene, who):
    with getattr(scene, who)() as pid:
        status, files = status_of(pid), files_of(pid)
        for names, ids in (("Uid", {str(USER)}), ("Gid", {str(USER)}), ("Groups", set())):
            assert set(field_of(status, names).split()) == ids, status
        is_dumpable = os.stat(f"/proc/{pid}/environ").st_uid == USER
    assert {int(field_of(status, name), 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}, status
    assert field_of(status, "NoNewPrivs") == "1" and field_of(status, "Seccomp") == "2", status
    assert not is_dumpable, "the user's other processes would look into it"
    strangers = [name for name in files.values() if name != "/dev/null" and not name.startswith(("pipe:", str(scene.packages)))]
    if who == "reading":
        assert not strangers, strangers
        return
    # Its question, and of the program that it looks at these.
    looked_at = [f"/proc/{scene.crowd.pid}/{name}" for name in ("maps", "pagemap")] + [os.path.realpath(sys.executable)]
    assert sorted(name for name in strangers if not name.startswith("socket:")) == sorted(looked_at), files
    assert sum(name.startswith("socket:") for name in strangers) == 1, files


def limits_of(pid):
    return {line[:25].strip(): line[25:].split()[:2] for line in Path(f"/proc/{pid}/limits").read_text().splitlines()}


@pytest.mark.parametrize(("who", "most"), [("looking", 512), ("reading", 64)])
def test_its_memory_has_a_limit(scene, who, most):
    with getattr(scene, who)() as pid:
        limits = limits_of(pid)
        results, _ = inside(pid, [f"mmap 0 {(most + 1) * MIB} 3 34 -1 0", f"mmap 0 {(most + 1) * MIB} 3 0x4022 -1 0", "prlimit64 0 2 words:-1,-1 0"])
    assert limits["Max data size"] == [str(most * MIB)] * 2 and limits["Max core file size"] == ["0", "0"], limits
    assert results == [-12, -12, -38], "ENOMEM, and for a higher limit ENOSYS"


def test_one_that_reads_knows_no_paths_of_others(scene):
    scene.remember()
    with scene.reading() as pid:
        known = {user for user, name in scene.remembered.items() if has_in_memory(pid, name.encode())}
    assert known == {0, USER}, "what was remembered for whom"


def has_in_memory(pid, text):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                if line.split()[1] == "rw-p" and text in memory.read(end - start):
                    return True
    return False


def test_neither_examiner_nor_mounter_has_a_secret(scene):
    secret = f"secret-{os.urandom(8).hex()}"
    password = scene.cluster.directory / "password"
    password.write_text(f"{secret}\n")
    password.chmod(0o600)
    with RedisServer() as server:
        server.command("CONFIG", "SET", "requirepass", secret)
        node = scene.cluster.node("b", remote=server.url, options=scene.cluster.options("--password-file", password))
        wait_until(lambda: has_in_memory(node.worker(), secret.encode()), 20, "the password in the worker")
        for pid in (*node.examiners(), *node.mounters()):
            assert not has_in_memory(pid, secret.encode()), Path(f"/proc/{pid}/cmdline").read_bytes()
        node.unmount()


def inodes_of(*tables):
    return {word for table in tables for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:] for word in line.split()}


@pytest.mark.parametrize("who", ["examiner", "mounter"])
def test_those_that_stay_speak_to_their_mount_alone(scene, who):
    """Sockets of this host, one and one for each question; no file of the store, the log or a user; no setting of ours."""
    pid = scene.others[who]
    names = list(files_of(pid).values())
    known = ("/dev/null", "socket:", "anon_inode:[pidfd]", *(["/memfd:inductorfs-mounted"] if who == "mounter" else []))
    strangers = [name for name in names if not name.startswith(known)]
    assert not strangers, strangers
    sockets = [name[8:-1] for name in names if name.startswith("socket:[")]
    assert sockets and not set(sockets) & inodes_of("tcp", "tcp6", "udp", "udp6", "raw", "packet", "netlink"), names
    settings = [word for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if word.startswith((b"INDUCTORFS_", b"NOTIFY_SOCKET"))]
    assert not settings, settings
    status = status_of(pid)
    assert field_of(status, "NoNewPrivs") == "1" and field_of(status, "Threads") == "1", status


@pytest.mark.parametrize("who", ["examiner", "mounter"])
def test_those_that_stay_have_a_filter(scene, who):
    calls = ("ptrace 16 1 0 0", "process_vm_writev 1 0 0 0 0 0", "bpf 0 0 0", "io_uring_setup 1 0", "settimeofday 0 0", "sethostname 0 0", "keyctl 0 0", "perf_event_open 0 0 0 0 0",
             "syslog 10 0 0", "userfaultfd 0", "pidfd_getfd 0 0 0", "open_by_handle_at 0 0 0")
    results, _ = inside(scene.others[who], calls)
    assert dict(zip(calls, results, strict=True)) == dict.fromkeys(calls, -errno.ENOSYS)


def test_one_that_stands_still_is_ended(scene):
    """By its deadline, since it was asked (30 s); the others of the user's went on meanwhile."""
    wait_until(lambda: not status_of(scene.still), 60, "the end of who looks")


def test_at_last_nothing_of_the_host_has_changed(scene):
    assert scene.outside() == scene.before
    left = scene.left()
    assert not left, left
    assert scene.peer.poll() is None and all(status_of(pid) for pid in scene.others.values()), "somebody was ended"
    scene.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        scene.listener.accept()

# SPDX-License-Identifier: Apache-2.0
"""Whoever has taken root's worker over, and runs code in it, has the store and what is sent to it: nothing else of the host."""
import contextlib
import ctypes
import os
import pwd
import shutil
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.attempts import address_of, kernel, loader, namespaces, processes, users, whole_host
from inductorfs_testing.compare import mount_lines
from inductorfs_testing.fixtures import lack
from inductorfs_testing.mounts import QuickCluster
from inductorfs_testing.node import files_of
from inductorfs_testing.taken_over import (CREATE, HERE, LIBC, WRITE, Attempt, field_of, inside, landlock, library, not_refused, one,
                                           opening, quoted)
from inductorfs_testing.twin import describe, unused_name

UP = "../" * 24
NAME = f"inductorfs-attack-{os.getpid()}"
KEY = 0x1FD00000 + os.getpid() % 0x10000  # of System V's
# Where whoever can makes files: a mistake of the worker's tree would show in one of them.
WRITABLE = ("/", "/usr", "/usr/lib", "/lib", "/etc", "/tmp", "/var", "/var/tmp", "/run", "/dev", "/dev/shm", "/proc", "/home", "/root")
# A process of the same user, as another mount's worker is: it may be traced by nobody, and no signal that can be ignored ends it.
PEER = ("import ctypes, signal\nfor number in range(1, 32):\n  if number not in (9, 19): signal.signal(number, signal.SIG_IGN)\n"
        "ctypes.CDLL(None).prctl(4, 0)\nprint('ready', flush=True)\nwhile True: signal.pause()")


class Scene:
    """A mount of root's, a process of the worker's user beside it, and things of the host that are open to everybody."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.node = cluster.node("a", environment={"INDUCTORFS_END_ON_REFUSED_CALL": ""})  # as users have it
        artefacts.write_atomic(self.node.cache, unused_name(1, "before"), b"before")
        self.first = self.worker
        status = Path(f"/proc/{self.worker}/status").read_text()
        self.user, *_ = ids = [int(word) for word in field_of(status, "Uid").split()]
        assert 0 not in ids and int(field_of(status, "CapPrm"), 16) == 0, "as root it would do all this to the host"
        self.others = {"supervisor": self.node.supervisors()[0], "examiner": self.node.examiners()[0], "mounter": self.node.mounters()[0],
                       "messenger": self.node.messengers()[0], "proxy": self.node.proxies()[0]}
        self.open_tree = cluster.directory / "canary"
        self.canary = self.open_tree / "file"

    @property
    def worker(self):
        return self.node.worker()

    @contextlib.contextmanager
    def things(self):
        for directory in (self.open_tree, self.open_tree / "below"):
            directory.mkdir()
            directory.chmod(0o777)
        self.canary.write_text("canary")
        self.canary.chmod(0o666)
        (self.open_tree / "removable").write_text("canary")
        for name in ("program", "moved"):
            program = self.node.store / f"{NAME}-{name}"
            program.write_text("#!/bin/sh\nexit 0\n")
            program.chmod(0o755)
            os.chown(program, self.user, self.user)
        made = [function(KEY, *arguments) for function, *arguments in ((LIBC.shmget, 4096, 0o1777), (LIBC.semget, 1, 0o1777), (LIBC.msgget, 0o1777))]
        assert min(made) >= 0
        self.segment = made[0]
        as_worker = {"user": self.user, "group": self.user, "extra_groups": []}
        with socket.socket(socket.AF_UNIX) as self.listener, socket.socket(socket.AF_UNIX) as abstract, \
                socket.create_server(("127.0.0.1", 0)) as port, \
                subprocess.Popen([sys.executable, "-c", PEER], stdout=subprocess.PIPE, **as_worker) as self.peer:
            try:
                self.listener.bind(str(self.open_tree / "socket"))
                self.listener.listen()
                self.port = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port.getsockname()[1]), socket.inet_aton("127.0.0.1"))
                abstract.bind(f"\0{NAME}")
                abstract.listen()
                (self.open_tree / "socket").chmod(0o777)
                assert self.peer.stdout.readline() == b"ready\n"
                self.before = self.outside()
                yield self
            finally:
                self.peer.kill()
                LIBC.shmctl(made[0], 0, None)
                LIBC.semctl(made[1], 0, 0, 0)
                LIBC.msgctl(made[2], 0, None)
                for place in (*map(Path, WRITABLE), self.node.store):
                    for left in place.glob(f"{NAME}*"):
                        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()

    def outside(self):
        """All that is below the directory that everybody may write to."""
        return {str(path): describe(path) for path in [self.open_tree, *self.open_tree.rglob("*")]}

    def directories(self):
        """{descriptor of the worker: its status}, of those that are directories."""
        found = {}
        for number in files_of(self.worker):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(f"/proc/{self.worker}/fd/{number}")
                if stat.S_ISDIR(status.st_mode):
                    found[number] = status
        return found

    def in_store(self):
        """The descriptor of the store that the worker has."""
        (number, *_) = [number for number, status in self.directories().items() if os.path.samestat(status, self.node.store.stat())]
        return number


@pytest.fixture(scope="module")
def scene():
    if os.geteuid() != 0:
        lack("this test changes users, namespaces or disks: root only")
    with QuickCluster() as cluster:
        with Scene(cluster).things() as made:
            yield made


def places_of_the_host(scene):
    for path in ("/etc/shadow", "/etc/gshadow", "/root", "/home", "/boot", "/var", "/var/log", "/opt", "/srv", "/mnt", "/run", "/sys",
                 "/sys/kernel", "/bin/sh", "/usr/bin", "/usr/bin/python3", "/usr/sbin", "/usr/share/doc", "/usr/include", "/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/sda", "/dev/vda",
                 "/dev/fuse", "/dev/shm", "/dev/pts", "/dev/tty", "/dev/ptmx", "/dev/console", "/dev/kvm", "/dev/net/tun", "/dev/nvidiactl", scene.open_tree,
                 scene.canary, scene.node.log, scene.node.home, scene.cluster.redis.socket):
        yield opening(path)
    for path in ("/etc/hosts", "/etc/ld.so.cache", "/etc/resolv.conf", library(), scene.canary):
        yield opening(path, WRITE)
    yield Attempt("chdir to the canary", [f"openat {HERE} \".\" {os.O_PATH}", f"chdir {quoted(scene.open_tree)}"], after=["fchdir %0"])


def new_files(scene):
    for directory in (*WRITABLE, scene.open_tree, scene.open_tree / "below", scene.cluster.directory):
        place = Path(directory) / NAME
        yield opening(place, CREATE)
        yield one(f"mkdirat {HERE} {quoted(f'{place}.d')} 0o777")
        yield one(f"symlinkat \"/etc/shadow\" {HERE} {quoted(f'{place}.l')}")
    store = scene.in_store()
    yield one(f"linkat {store} {quoted(f'{NAME}-program')} {HERE} {quoted(scene.open_tree / 'link')} 0")
    yield one(f"renameat2 {store} {quoted(f'{NAME}-moved')} {HERE} {quoted(scene.open_tree / 'moved')} 0")
    yield one(f"unlinkat {HERE} {quoted(scene.open_tree / 'removable')} 0")
    yield one(f"fchmodat {HERE} {quoted(scene.canary)} 0o600")


def ways_up(scene):
    """From each directory that the worker has, and from where procfs may lead."""
    for number in scene.directories():
        for path in ("/etc/shadow", str(scene.canary), "/usr/bin/env"):
            yield opening(UP + path[1:], at=number)
            yield opening(f"/proc/self/fd/{number}/{UP}{path[1:]}")
    yield Attempt("up from the store as working directory", [
        f"openat {HERE} \".\" {os.O_PATH}", f"fchdir {scene.in_store()}", "chdir \"..\"", f"openat {HERE} {quoted(UP + str(scene.canary)[1:])} 0"], after=["fchdir %0"])
    for start in ("/proc/self/root", "/proc/self/cwd", f"/proc/{scene.worker}/root", "/proc/thread-self/root", "/proc/1/root", "/proc/1/cwd"):
        for path in ("/etc/shadow", str(scene.canary)):
            yield opening(f"{start}/{UP}{path[1:]}")
    handle = handle_of(scene.canary)
    yield Attempt("open_by_handle_at of the canary", [f"open_by_handle_at {scene.in_store()} hex:{handle.hex()} 0"])


def handle_of(path):
    """struct file_handle."""
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.c_int()
    assert LIBC.name_to_handle_at(HERE, os.fsencode(path), handle, ctypes.byref(mount), 0) == 0, os.strerror(ctypes.get_errno())
    return handle.raw[:8 + struct.unpack_from("I", handle)[0]]


def files_of_processes(scene):
    for path in ("/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/sys/kernel/hostname", "/proc/cmdline"):
        yield opening(path)
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe", "/proc/self/mem", "/proc/thread-self/mem", "/proc/self/exe",
                 "/proc/self/oom_score_adj", "/proc/self/uid_map", f"/proc/{scene.worker}/task/{scene.worker}/mem"):
        yield opening(path, WRITE)
    for name, pid in {**scene.others, "peer": scene.peer.pid}.items():
        for path in ("environ", "maps", "cwd", "root", "exe", "fd/0", "fd", "ns/mnt", "stack", "root/etc/hosts", f"root{scene.canary}", "mem"):
            yield opening(f"/proc/{pid}/{path}", what=f"open, of {name},")
        yield opening(f"/proc/{pid}/mem", WRITE, what=f"open, of {name},")


def other_programs(scene):
    yield one('execve "/bin/sh" words:0 words:0')
    yield one('execve "/usr/bin/env" words:0 words:0')
    yield one('execve "/proc/self/exe" words:0 words:0')
    yield one(f"execveat {scene.in_store()} {quoted(f'{NAME}-program')} words:0 words:0 0")
    yield Attempt("a program in memory", ['memfd_create "x" 0', 'write %0 "#!/bin/sh\\x0a" 10', 'execveat %0 "" words:0 words:0 0x1000'])
    yield one(f'execve "{loader()}" words:0 words:0')


def code(scene):
    """New instructions: what is no code stays none."""
    made = "mmap 0 4096 3 34 -1 0"
    yield one("mmap 0 4096 5 34 -1 0")
    yield one("mmap 0 4096 7 34 -1 0")
    yield Attempt("mprotect", [made, "mprotect %0 4096 5"])
    yield Attempt("pkey_mprotect", [made, "pkey_mprotect %0 4096 5 -1"])
    yield Attempt("mmap of a file in memory", ['memfd_create "x" 0', "mmap 0 4096 5 1 %0 0"])
    yield Attempt("mmap of a file of the store", [f"openat {scene.in_store()} {quoted(f'{NAME}-program')} 0", "mmap 0 4096 5 2 %0 0"])
    yield Attempt("mmap of a library", [f"openat {HERE} {quoted(library())} 0", "mmap 0 4096 5 2 %0 0"])
    yield Attempt("shmat", ["shmget 0 4096 0o1600", "shmat %0 0 0o100000"], after=["shmctl %0 0 0"])
    yield Attempt("personality", ["personality 0x400000"], after=["personality 0"])
    yield one("memfd_secret 0")


def mounts(scene):
    for call in ('mount "none" "/proc" "tmpfs" 0 0', 'mount "/" "/proc" 0 4096 0', 'mount 0 "/" 0 0x21 0', 'umount2 "/proc" 2', f"umount2 {quoted(scene.node.cache)} 2",
                 'pivot_root "." "."', 'chroot "."', 'fsopen "tmpfs" 0', f'fspick {HERE} "/" 0', f'open_tree {HERE} "/" 1', f'move_mount {HERE} "/proc" {HERE} "/dev" 0',
                 f'mount_setattr {HERE} "/" 0 words:0,4,0,0 32'):
        yield one(call)
    yield one(f"mknodat {scene.in_store()} {quoted(f'{NAME}-device')} 0o20666 {os.makedev(1, 1)}")
    for ids in ("0 -1", "-1 0", "0 0"):
        yield Attempt(f"fchownat {ids}", [f"fchownat {scene.in_store()} {quoted(f'{NAME}-program')} {ids} 0"])


def sockets(scene):
    # AF_KEY, AF_NETLINK's NETFILTER, KOBJECT_UEVENT, GENERIC and AUDIT, AF_PACKET, AF_RDS, AF_CAN, AF_TIPC, AF_BLUETOOTH, AF_ALG, AF_VSOCK, AF_XDP; raw ones
    for call in ("15 3 2", "16 3 12", "16 3 15", "16 3 16", "16 3 9", "17 3 0", "17 2 0", "21 5 0", "29 3 1", "30 1 0", "31 3 0", "38 5 0", "40 1 0", "44 3 0", "2 3 1",
                 "2 3 255", "10 3 58", "2 1 262", "10 1 262", "2 2 1"):  # and MPTCP, whose bind(2) Landlock does not judge, and ICMP
        yield one(f"socket {call}")
    for path in ("/run/systemd/private", "/run/systemd/notify", "/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/docker.sock",
                 "/run/containerd/containerd.sock", "/dev/log", scene.open_tree / "socket"):
        address = address_of(path)
        yield Attempt(f"connect {path}", ["socket 1 1 0", f"connect %0 hex:{address.hex()} {len(address)}"], after=["close %0"])
    if landlock() >= 6:
        address = struct.pack("H", socket.AF_UNIX) + b"\0" + NAME.encode()
        yield Attempt("connect to an abstract socket", ["socket 1 1 0", f"connect %0 hex:{address.hex()} {len(address)}"], after=["close %0"])
    if landlock() >= 4:
        address = struct.pack("=HHI8x", socket.AF_INET, 0, 0)
        yield Attempt("connect to a TCP port", ["socket 2 1 0", f"connect %0 hex:{scene.port.hex()} {len(scene.port)}"], after=["close %0"])
        yield Attempt("bind a TCP port", ["socket 2 1 0", f"bind %0 hex:{address.hex()} {len(address)}"], after=["close %0"])
    address = address_of(scene.open_tree / "bound")
    yield Attempt("bind among the canaries", ["socket 1 1 0", f"bind %0 hex:{address.hex()} {len(address)}"], after=["close %0"])


def shared_memory(scene):
    yield one(f"shmget {KEY} 0 0")
    yield one(f"semget {KEY} 0 0")
    yield one(f"msgget {KEY} 0")
    yield one(f"shmat {scene.segment} 0 {0o10000}", also=(22, 43))  # SHM_RDONLY; EINVAL, EIDRM: there is none of this number


GROUPS = [places_of_the_host, new_files, ways_up, files_of_processes, code, users, namespaces, mounts, processes, kernel, whole_host, sockets, shared_memory]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_it_is_refused(scene, group):
    allowed = not_refused(scene.worker, list(group(scene)))
    assert not allowed, "not refused:\n" + "\n".join(allowed)


@pytest.mark.parametrize("number", range(6))
def test_it_becomes_no_other_program(scene, number):
    allowed = not_refused(scene.worker, [list(other_programs(scene))[number]])
    assert not allowed, "not refused:\n" + "\n".join(allowed)


def mounts_of(pid):
    """{number: (place, options)}"""
    found = {}
    for line in mount_lines(pid):
        words = line.split(" ")
        found[int(words[0])] = (os.fsencode(words[4]).decode("unicode_escape"), set(words[5].split(",")))
    return found


def test_its_store_gets_no_set_uid_program(scene):
    """On the host, whose mount of the store runs programs, such a one would make everybody the worker's user, without tree and filter."""
    number, worker, program = scene.in_store(), scene.worker, scene.node.store / f"{NAME}-program"
    calls = [f"fchmodat {number} {quoted(program.name)} {mode:#o}" for mode in (0o4755, 0o2755, 0o6711)]
    calls += [f"openat {number} {quoted(f'{NAME}-fresh')} {os.O_RDWR | os.O_CREAT} 0o4755",
              f"openat2 {number} {quoted(f'{NAME}-fresh')} words:{os.O_RDWR | os.O_CREAT},0o4755,0 24"]
    (results, _) = inside(worker, calls)
    assert max(results) < 0, list(zip(calls, results))
    assert not program.stat().st_mode & 0o6000 and not (scene.node.store / f"{NAME}-fresh").exists()
    mount = int(field_of(Path(f"/proc/{worker}/fdinfo/{number}").read_text(), "mnt_id"))
    _, options = mounts_of(worker)[mount]
    assert {"nosuid", "nodev", "noexec"} <= options, options


# In a mount namespace of its own, in which a directory of the host lies below the store.
HAND_IN = """
import ctypes, os, socket, sys
libc, (source, place, number) = ctypes.CDLL(None), sys.argv[1:]
assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0
assert libc.mount(source.encode(), place.encode(), None, 4096, None) == 0
socket.send_fds(socket.socket(fileno=int(number)), [b"x"], [os.open(place, os.O_RDONLY)])
"""


def test_an_open_directory_that_is_handed_in_leads_nowhere(scene):
    """An accomplice on the host has what everybody has, and the worker's user has more: other mounts' stores."""
    if landlock() < 2:
        lack("a kernel with Landlock of Linux 5.19")
    place = scene.node.store / f"{NAME}-socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        place.chmod(0o777)
        address = address_of(place)
        (sock, connected), _ = inside(scene.worker, ["socket 1 5 0", f"connect $0 hex:{address.hex()} {len(address)}"])
        assert connected == 0
        connection, _ = listener.accept()
        with connection:
            directory = os.open(scene.open_tree, os.O_RDONLY)
            socket.send_fds(connection, [b"x"], [directory])
            os.close(directory)
            below = scene.node.store / f"{NAME}-below"
            below.mkdir()
            subprocess.run([sys.executable, "-c", HAND_IN, scene.open_tree, below, str(connection.fileno())], timeout=60, check=True,
                           pass_fds=[connection.fileno()])
            calls = ["mmap 0 4096 3 34 -1 0", *[f"recvmsg {sock} words:0,0,0,0,$0,64,0 0"] * 2]
            (_, *received), _ = inside(scene.worker, calls)
    given, lower = [number for number, status in scene.directories().items() if os.path.samestat(status, scene.open_tree.stat())]
    attempts = [opening("file", at=given), opening("file", WRITE, at=given), opening("below", at=given), opening("fresh", CREATE, at=given),
                opening(f"/proc/self/fd/{given}/file"), one(f'mkdirat {given} "fresh" 0o777'), one(f'unlinkat {given} "removable" 0'),
                one(f'symlinkat "file" {given} "fresh"'), one(f'renameat2 {given} "removable" {given} "fresh" 0'),
                one(f'linkat {given} "file" {given} "fresh" 0'), one(f'fchmodat {given} "file" 0o600'), opening("file", at=lower),
                opening("file", WRITE, at=lower), opening("fresh", CREATE, at=lower), one(f'unlinkat {lower} "removable" 0')]
    try:
        allowed = not_refused(scene.worker, attempts)
    finally:
        inside(scene.worker, [f"close {number}" for number in (given, lower, sock)])
    assert min(received) >= 0 and not allowed, "not refused:\n" + "\n".join(allowed)


def test_its_rights_are_none(scene):
    try:
        user = pwd.getpwnam("inductorfs").pw_uid
    except KeyError:
        user = 60957
    for thread in Path(f"/proc/{scene.worker}/task").iterdir():
        status = (thread / "status").read_text()
        assert {int(field_of(status, name), 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}, status
        assert field_of(status, "NoNewPrivs") == "1" and set(field_of(status, "Uid").split()) == {str(user)}, status
        assert field_of(status, "Seccomp") == "2", status
    (messenger,), (proxy,) = scene.node.messengers(), scene.node.proxies()
    for pid in (messenger, proxy):
        status = Path(f"/proc/{pid}/status").read_text()
        assert {int(field_of(status, name), 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}, status
        assert field_of(status, "NoNewPrivs") == "1" and set(field_of(status, "Uid").split()) == {str(user)}, status
    held = {os.readlink(f"/proc/{proxy}/fd/{name}").split(":")[0] for name in os.listdir(f"/proc/{proxy}/fd")}
    assert held == {"socket"}, held


@pytest.mark.parametrize("kind", ["mnt", "ipc"])
def test_its_namespaces_are_its_own(scene, kind):
    serving = (scene.worker, *scene.node.messengers(), *scene.node.proxies())
    assert len(serving) == 3
    for pid in serving:
        assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), pid
    assert len({os.readlink(f"/proc/{pid}/ns/mnt") for pid in serving}) == 1


def test_its_tree_has_only_what_it_needs(scene):
    def is_expected(place):
        known = ("/", "/proc", "/etc", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/lib", "/lib32", "/lib64",
                 "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
                 "/var/lib/ca-certificates", "/usr/share/crypto-policies", "/usr/share/zoneinfo", "/cpuinfo", str(scene.node.store))
        return place in known or place.startswith(("/etc/", "/usr/lib/")) or Path(place) in resolvers()

    found = mounts_of(scene.worker).values()
    assert [place for place, _ in found if not is_expected(place)] == []
    assert [place for place, options in found if "nosuid" not in options] == []
    assert [place for place, options in found if "ro" not in options and Path(place) != scene.node.store and not place.startswith("/dev/")] == []
    shown = [Path(place) for place, _ in found if place not in ("/", "/proc")]
    for directory, names, files in os.walk(f"/proc/{scene.worker}/root"):
        here = Path("/") / Path(directory).relative_to(f"/proc/{scene.worker}/root")
        names[:] = [name for name in names if here / name not in shown and here / name != Path("/proc")]
        assert [name for name in files if here / name not in shown and (here / name) != Path("/boot-id")] == [], here


def resolvers():
    """Where links in /etc lead that the resolver follows."""
    return {Path(os.path.realpath(f"/etc/{name}")).parent for name in ("resolv.conf", "hosts", "nsswitch.conf")}


def test_afterwards_all_is_as_before(scene):
    """The mount serves, by the same worker; nothing of the host has changed."""
    node = scene.node
    name = unused_name(2, "after")
    artefacts.write_atomic(node.cache, name, b"after")
    node.sync()
    assert (node.cache / name).read_bytes() == b"after"
    assert scene.outside() == scene.before
    assert [path for place in map(Path, WRITABLE) for path in place.glob(f"{NAME}*")] == []
    assert scene.peer.poll() is None and {pid for pid in scene.others.values() if not Path(f"/proc/{pid}").exists()} == set()
    assert scene.worker == scene.first and node.status()["takeover"]["restarts"] == 0

# SPDX-License-Identifier: Apache-2.0
"""What whoever has taken root's worker over says to root's other processes: questions, tasks and words that no worker would say, by the
sockets that it has. INDUCTORFS_STRESS_SECONDS: how long, for a search (CONTRIBUTING.md)."""
import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, environments
from inductorfs_testing.compare import is_mounted
from inductorfs_testing.mounts import stopped
from inductorfs_testing.processes import SANITIZER, run, wait_until
from inductorfs_testing.taken_over import LIBC, field_of
from inductorfs_testing.twin import describe

pytestmark = pytest.mark.usefixtures("root")
SECONDS = float(os.environ.get("INDUCTORFS_STRESS_SECONDS", 3))
SEED = int(os.environ.get("INDUCTORFS_CHAOS_SEED", 20261129))
LINK, EXAMINER, MOUNTER, MAGIC = 5, 13, 15, 0x69667376  # supervisor/protocol.h and .cc
FACETS = ("torch", "environment", "python", "gpu", "trust", "libc", "nonsense")
OF_EXAMINER = ("job", "mounts", "open-files", "names", "places", "facts")
OF_MOUNTER = ("listens", "make log", "connect", "secret.password", "secret.ca", "secret.key", "show", "uncover")
OF_MOUNT = ("mount", "unmount", "leave", "listen", "unlisten")  # a worker that says these ends its own mount
# Where root's processes might make something of theirs; nobody else does while tests run.
OF_ROOT = ("/etc", "/boot", "/usr/bin", "/usr/lib/systemd", "/usr/libexec")


class Liar:
    def __init__(self, node, directory, chance):
        self.node, self.chance, self.said = node, chance, 0
        self.processes = (os.getpid(), node.supervisors()[0], node.worker(), 1)
        self.directory = directory
        directory.chmod(0o777)
        (directory / "program").write_text(f"#!/bin/sh\nid > {directory}/ran\n")
        (directory / "program").chmod(0o4755)
        os.chown(directory / "program", 60957, 60957)

    def socket(self, number):
        """The worker's own end."""
        process = os.pidfd_open(self.node.worker())
        try:
            got = LIBC.syscall(ctypes.c_long(438), process, number, 0)  # pidfd_getfd(2)
            assert got >= 0, os.strerror(ctypes.get_errno())
            return socket.socket(fileno=got)
        finally:
            os.close(process)

    def number(self):
        return self.chance.choice((0, 2, *self.processes, self.chance.randrange(1 << 16), -1, 1 << 31, 1 << 40, 1 << 63, 1 << 64, 0.5))

    def text(self, depth=0):
        made = self.chance.choice(("", "/etc/shadow", "../" * 30 + "etc/shadow", f"{self.directory}/program", "0", "lazily", "unless busy", "\x00", "é\xff",
                                   "x" * self.chance.choice((1, 300, 70_000)), f"{self.chance.randrange(1 << 40)} {'2f' * 20}\n" * self.chance.randrange(40),
                                   json.dumps({"places": ["/etc/shadow", "/root"], "user": 0}), "[" * 300, str(self.node.cache), f"{self.number()} " * 5))
        return made if depth or self.chance.random() < 0.8 else json.dumps([self.text(1), self.number()])

    def some(self, members, make):
        """An object with these members, sometimes without one of them or with another one."""
        return {name: make() for name in self.chance.choice((members, members, members, members[1:], (*members, "more")))}

    def question(self, tasks):
        ask = self.chance.choice((0, 1, 2, 3, 3, 4, 5, 5, 5, 6, self.number()))
        question = {"ask": ask, "pid": self.number(), "identity": self.some(("start", "stack", "code"), self.number),
                    "told": self.some(("text", "seal"), self.text), "named": self.some(("text", "seal"), self.text), "facet": self.chance.choice(FACETS), "held": self.number(),
                    "task": self.chance.choice((*tasks, self.text(1))), "request": self.text()}
        if self.chance.random() < 0.2:
            question.pop(self.chance.choice(list(question)))
        elif self.chance.random() < 0.2:
            question[self.chance.choice(list(question))] = self.chance.choice((None, [], {}, self.number(), self.text(1)))
        words = bytearray(json.dumps(question).encode())
        if self.chance.random() < 0.3:
            for _ in range(self.chance.randrange(1, 9)):
                words[self.chance.randrange(len(words))] = self.chance.randrange(256)
        return bytes(words[:131_072])

    def descriptors(self, held):
        """One that answers come to, or none; and what was not asked for."""
        ours, theirs = socket.socketpair()
        held.enter_context(ours)
        held.enter_context(theirs)
        given = [theirs.fileno()] if self.chance.random() < 0.7 else []
        for _ in range(self.chance.choice((0, 0, 1, 1, 2, 9))):
            path, flags = self.chance.choice((("/dev/null", os.O_RDWR), ("/etc/hostname", os.O_RDONLY), ("/dev/zero", os.O_RDONLY), (self.directory, os.O_RDONLY),
                                              (self.directory / "program", os.O_RDONLY), (self.directory / "program", os.O_PATH), ("/proc/self/mem", os.O_RDWR)))
            given.append(os.open(path, flags | os.O_CLOEXEC))
            held.callback(os.close, given[-1])
        self.chance.shuffle(given)
        return given

    def say(self, to, words):
        with contextlib.ExitStack() as held:
            given = self.descriptors(held)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, ConnectionRefusedError):
                wait_until(lambda: self.sent(to, words, given), 20, "a process that takes questions", pause=0.001)
                self.said += 1

    @staticmethod
    def sent(to, words, descriptors):
        with contextlib.suppress(BlockingIOError):
            socket.send_fds(to, [words], descriptors, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True

    def lie(self, tasks_of_mounter=OF_MOUNTER, seconds=SECONDS):
        end = time.monotonic() + seconds
        with self.socket(EXAMINER) as examiner, self.socket(MOUNTER) as mounter:
            while time.monotonic() < end:
                self.say(examiner, self.question(OF_EXAMINER))
                self.say(mounter, self.question(tasks_of_mounter))
                self.say(self.chance.choice((examiner, mounter)), self.chance.randbytes(self.chance.choice((0, 1, 40, 5000))))

    def words(self, link, chosen, count):
        for _ in range(count):
            self.say(link, self.chance.choice((struct.pack("II", MAGIC, self.chance.choice(chosen)), self.chance.randbytes(self.chance.randrange(12)))))


def python_of(cluster):
    """An interpreter that is known, whatever this host's own has."""
    return "--python", cluster.directory / "bare/bin/python"


@pytest.fixture()
def liar(cluster):
    cluster.directory.chmod(0o755)
    environments.bare(cluster.directory / "bare")
    node = cluster.node("a", environment={"INDUCTORFS_END_ON_REFUSED_CALL": ""}, options=python_of(cluster))
    (node.cache / "before").write_text("before")
    with tempfile.TemporaryDirectory(dir=cluster.directory) as directory:
        yield Liar(node, Path(directory), random.Random(SEED))


@contextlib.contextmanager
def nothing_of_root_changes(liar, other):
    """Neither its files, nor another mount."""
    stamp = liar.directory / "stamp"
    stamp.touch()
    private = describe(other.store)
    yield
    newer = run(["find", *OF_ROOT, "-xdev", "-cnewer", stamp], seconds=120)
    assert newer.out == "", newer.out
    assert not (liar.directory / "ran").exists(), "somebody has run the program that the worker gave"
    assert is_mounted(other.cache) and (other.cache / "others").read_text() == "others" and describe(other.store)[:4] == private[:4]
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, errors="replace", check=True, timeout=30).stdout
    assert str(liar.directory) not in processes


@pytest.fixture()
def other(cluster):
    node = cluster.node("b", options=python_of(cluster))
    (node.cache / "others").write_text("others")
    return node


def test_examiner_and_mounter_go_on_whatever_they_are_asked(liar, other):
    node = liar.node
    before = node.supervisors(), node.worker(), node.examiners(), node.mounters()
    with nothing_of_root_changes(liar, other):
        liar.lie()
    print(f"seed {SEED}: {liar.said} messages", flush=True)
    for process in (*node.examiners(), *node.mounters()):
        children = Path(f"/proc/{process}/task/{process}/children")
        wait_until(lambda: not children.read_text(), 60, "the end of its children")  # noqa: B023
        assert SANITIZER or int(field_of(Path(f"/proc/{process}/status").read_text(), "VmRSS").split()[0]) < 128 * 1024
    assert (node.supervisors(), node.worker(), node.examiners(), node.mounters()) == before, node.log_tail(60)
    assert (node.cache / "before").read_text() == "before"
    # What a job writes is still looked into, and what root alone may do is still done.
    graph = artefacts.write_graph(node.cache, "k", "value").relative_to(node.cache)
    wait_until(lambda: (other.cache / graph).exists(), 60, "what was written after the lies")
    node.unmount()


def test_a_supervisor_hears_nothing_but_its_words(liar, other):
    """Of devices, programs, and of examiner and mounter that are said to be silent: the mount serves on. With another lock or control socket
    (words 5 and 6) it would not: those are the worker's own."""
    node = liar.node
    before = node.supervisors()
    with nothing_of_root_changes(liar, other):
        for _ in range(6):
            with liar.socket(LINK) as link:
                liar.words(link, (0, 1, 2, 2, 2, 3, 4, 7, 8, 10, 11, 1 << 20), 200)
            node.next_worker(node.kill_worker())
            assert (node.cache / "before").read_text() == "before"
    assert node.supervisors() == before, node.log_tail(60)
    for word in ("supervisor.program_refused", "supervisor.upgrade_asked taken=false"):
        wait_until(lambda: word in node.log.read_text(), what=f"{word} in the log: else no word of the worker was one")  # noqa: B023
    assert "taken=true" not in node.log.read_text(), "of a program that it has made"
    node.unmount()


@contextlib.contextmanager
def lingering():
    """What makes such a connection: whoever closes it last waits for an hour, or until the block ends."""
    with contextlib.ExitStack() as peers, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)

        def make():
            sending = socket.create_connection(listener.getsockname())
            peers.enter_context(listener.accept()[0])
            sending.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sending.send(bytes(65536))
            sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
            return sending
        yield make


def test_a_supervisor_waits_for_nothing_that_it_is_sent(liar, other):
    """Its words, words that there are not, and more descriptors than any word has."""
    node = liar.node
    (supervisor,) = node.supervisors()
    with nothing_of_root_changes(liar, other), lingering() as make:
        with liar.socket(LINK) as link, stopped(supervisor):  # or this process would be the last to close what it sends
            for word in (1, 2, 5, 6, 11, 99):
                for count in (1, 2, 5):
                    sent = [make() for _ in range(count)]
                    socket.send_fds(link, [struct.pack("II", MAGIC, word)], [one.fileno() for one in sent])
                    for one in sent:
                        one.close()
        node.next_worker(node.kill_worker())
        assert (node.cache / "before").read_text() == "before"
        assert node.supervisors() == [supervisor]
        node.unmount()


def test_a_worker_starts_one_proxy_however_often_it_asks(liar, other):
    node = liar.node
    with liar.socket(LINK) as link, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(liar.directory / "socket"))
        listener.listen()
        for _ in range(300):
            wait_until(lambda: liar.sent(link, struct.pack("II", MAGIC, 11), [listener.fileno()]), 20, "a supervisor that hears", pause=0.001)
    node.next_worker(node.kill_worker())
    wait_until(lambda: len(node.proxies()) == 1, 20, "the end of all but one")
    node.unmount()


def test_a_worker_ends_its_own_mount_and_nothing_else(liar, other):
    node = liar.node
    with nothing_of_root_changes(liar, other):
        with liar.socket(LINK) as link:
            liar.lie((*OF_MOUNT, *OF_MOUNTER), min(SECONDS, 10))
            liar.words(link, (2, 5, 6, 9), 100)
        for process in node.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        node.cli("unmount", "--lazy", node.cache, seconds=60)
        wait_until(lambda: not node.processes(), 60, "the end of its processes")
    assert not is_mounted(node.cache)

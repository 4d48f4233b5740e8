# SPDX-License-Identifier: Apache-2.0
"""The worker starts no program: the examiner learns the facts of the host, looks at places and asks for names."""
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from inductorfs_testing import artefacts, environments, mounts
from inductorfs_testing.node import files_of
from inductorfs_testing.processes import wait_until
from inductorfs_testing.users import as_user

ALICE = 54321


def stat_of(pid):
    """Name and parent of a process; none when it has ended."""
    with contextlib.suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return name, int(rest.split()[1])
    return "", 0


class Watch:
    """Names of the processes that have come and gone below the workers and the examiners of a node, as often as this host lets it look.
    A worker starts children for what who has open (open_files.cc), which are no part of this."""

    def __init__(self, node):
        self._node, self._ends = node, threading.Event()
        self.of_worker, self.of_examiner = set(), set()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def _run(self):
        while not self._ends.is_set():
            parents, verbs = {}, {}
            for entry in os.listdir("/proc"):
                if not entry.isdigit():
                    continue
                parents[int(entry)] = stat_of(entry)[1]
                with contextlib.suppress(OSError):
                    verbs[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")[:3]
            mine = os.fsencode(str(self._node.cache))
            for pid, words in verbs.items():
                above, seen = parents.get(pid, 0), 0
                while above > 1 and seen < 20:
                    over = verbs.get(above, [])
                    if over[1:] == [b"worker", mine]:
                        self.of_worker.add(b" ".join(words))
                    if over[1:] == [b"examiner", mine] and above != pid:
                        self.of_examiner.add(words[1] if len(words) > 1 else b"")
                    above, seen = parents.get(above, 0), seen + 1


def start(cluster, *options, **keywords):
    return cluster.node("a", start=False, **keywords).start("--python", "/usr/bin/python3", *mounts.QUICK, *options)


def test_nothing_of_the_host_is_asked_by_a_child_of_the_worker(cluster):
    node = cluster.node("a", start=False)
    with Watch(node) as watch:
        node.start("--python", "/usr/bin/python3", "--probe-interval", "1", *mounts.QUICK)
        for more in (1, 2):
            os.kill(node.worker(), signal.SIGHUP)
            wait_until(lambda: node.status()["facts"]["probes"] >= more, 60, "another look at the host")
        seen = node.status()["facts"]["probes"]

        def is_seen():
            """Who looks may be gone before a busy host lets the watch look."""
            nonlocal seen
            if (probes := node.status()["facts"]["probes"]) > seen:
                seen = probes
                os.kill(node.worker(), signal.SIGHUP)
            return {b"host-facts", b"gpu-probe"} & watch.of_examiner
        os.kill(node.worker(), signal.SIGHUP)
        wait_until(is_seen, 120, "who looks at the host, below the examiner")
    assert not watch.of_worker, watch.of_worker
    told = node.cli("fingerprint", "--python", "/usr/bin/python3", "--json")
    assert told.code == 0, told
    node.unmount()
    assert not node.processes()


def test_facts_are_those_that_the_command_line_learns(cluster):
    environments.bare(cluster.directory / "environment")
    python = cluster.directory / "environment/bin/python"
    node = cluster.node("a", start=False).start("--python", python, *mounts.QUICK)
    differ = node.cli("fingerprint", "--python", python, "--json")
    assert differ.code == 0
    theirs = node.root / "facts.json"
    theirs.write_text(differ.out)
    other = cluster.node("b", start=False).start("--fingerprint", theirs, *mounts.QUICK)
    name = artefacts.build_library(node.cache, "library").relative_to(node.cache)
    node.sync()
    mounts.appears(other.cache / name)


def test_an_examiner_that_is_killed_while_facts_are_learned_is_followed(cluster):
    node = start(cluster, "--probe-interval", "0")
    for _ in range(3):
        before = node.status()["facts"]["probes"]
        pid = wait_until(lambda: node.examiners(), what="an examiner")[0]
        os.kill(node.worker(), signal.SIGHUP)
        with contextlib.suppress(Exception):
            wait_until(lambda: node.examiner_children() or node.status()["facts"]["probes"] > before, 10, "a look")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: node.status()["facts"]["probes"] > before, 60, "the facts")
        assert not node.status()["facts"]["problem"] and not node.status()["facts"]["kept"], node.log.read_text()
    node.unmount()
    assert not node.processes()


class Stopping:
    """Stops each examiner of a node, and its children, as soon as it is there."""

    def __init__(self, node):
        self._node, self._ends = node, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        self._signal(signal.SIGCONT)

    def _run(self):
        while not self._ends.wait(0.002):
            self._signal(signal.SIGSTOP)

    def _signal(self, number):
        mine = [b"examiner", os.fsencode(str(self._node.cache))]
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")[1:3] == mine:
                    os.kill(int(entry), number)


def test_a_mount_whose_examiners_stand_still_serves_and_learns_later(cluster):
    node = cluster.node("a", start=False)
    with Stopping(node) as stopping:
        begun = time.monotonic()
        node.start("--python", "/usr/bin/python3", *mounts.QUICK)
        assert time.monotonic() - begun < 55
        (node.cache / "a file").write_text("it serves")
        assert (node.cache / "a file").read_text() == "it serves"
        assert "mount.facts_not_learned" in node.log.read_text()
        stopping.end()
    wait_until(lambda: "host.facts_changed" in node.log.read_text(), 180, "the facts")
    node.unmount()
    assert not node.processes()


def test_a_mount_ends_while_nobody_answers(cluster):
    node = start(cluster, "--probe-interval", "0")
    with Stopping(node):
        os.kill(node.worker(), signal.SIGHUP)
        time.sleep(0.3)  # the question is under way, or comes while the mount ends
        begun = time.monotonic()
        node.unmount()
        assert time.monotonic() - begun < 15
    wait_until(lambda: not node.processes(), what="the end")


def test_names_are_asked_by_the_examiner(cluster, root):
    node = cluster.node("a", start=False)
    cluster.directory.chmod(0o755)
    node.root.chmod(0o755)
    node.cache.chmod(0o1777)
    with Watch(node) as watch:
        node.start(*cluster.options("--trust", "user", "--lookup-patience", "5000"))
        root_of_alice = node.cache / "alice"
        os.mkdir(root_of_alice)
        os.chown(root_of_alice, ALICE, ALICE)
        as_user(ALICE, 0o022, (root_of_alice / "fxgraph").exists)
        wait_until(lambda: {item["path"]: item["shared_with"] for item in node.status()["file_system"]["first_roots"]}
                   .get("alice") == f"user=#{ALICE}", what="a name")
    assert not watch.of_worker, watch.of_worker
    node.unmount()


def test_an_examiner_of_any_mount_has_no_secret(cluster):
    """How facts are learned is all that it is given, and it keeps no descriptor of that."""
    node = cluster.quick("a")
    pid = wait_until(lambda: node.examiners(), what="an examiner")[0]
    files = list(files_of(pid).values())
    assert not [name for name in files if "memfd" in name], files
    mine = list(files_of(node.worker()).values())
    assert not [name for name in mine if "inductorfs-facts" in name], mine
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert words[1:4] == [b"examiner", os.fsencode(str(node.cache)), os.fsencode(str(node.store / "fingerprint.cache"))]
    node.unmount()

# SPDX-License-Identifier: Apache-2.0
"""A server that answers and refuses writes: `status`, `doctor`, the log and systemd say it, with the reason and since when, and it
clears itself when the server takes writes again."""
import contextlib
import socket
import subprocess

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import published
from inductorfs_testing.node import let_through
from inductorfs_testing.processes import run, wait_until

PROGRAM = places.program()
SEEN_WITHIN = 40  # Heartbeat::kRecordInterval, and the pauses of the publisher


class Operator:
    """A connection that stays, and so keeps its rights when the server wants a password."""

    def __init__(self, redis):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(str(redis.socket))
        self._answers = self._socket.makefile("rb")

    def __call__(self, *words):
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        answer = self._answers.readline()
        assert not answer.startswith(b"-"), (words, answer)

    def close(self):
        self._answers.close()
        self._socket.close()


def fill(operator, redis):
    operator("CONFIG", "SET", "maxmemory-policy", "noeviction")
    operator("CONFIG", "SET", "maxmemory", "100kb")


def fail_to_save(operator, redis):
    (redis.directory / "dump.rdb" / "in the way").mkdir(parents=True)
    operator("CONFIG", "SET", "save", "3600 1")
    operator("BGSAVE")
    wait_until(lambda: b"rdb_last_bgsave_status:err" in redis.command("INFO", "persistence"), 20, "the save to fail")


def save(operator, redis):
    (redis.directory / "dump.rdb" / "in the way").rmdir()
    (redis.directory / "dump.rdb").rmdir()
    operator("BGSAVE")


def want_password(operator, redis):
    operator("CONFIG", "SET", "requirepass", "secret")
    operator("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


FAULTS = {
    "OOM": (fill, lambda operator, _: operator("CONFIG", "SET", "maxmemory", "0"), "raise maxmemory"),
    "READONLY": (lambda operator, _: operator("REPLICAOF", "127.0.0.1", "1"), lambda operator, _: operator("REPLICAOF", "NO", "ONE"),
                 "name the master with --remote"),
    "MISCONF": (fail_to_save, save, "its disk's free space"),
    "NOREPLICAS": (lambda operator, _: operator("CONFIG", "SET", "min-replicas-to-write", "1"),
                   lambda operator, _: operator("CONFIG", "SET", "min-replicas-to-write", "0"), "min-replicas-to-write"),
    "NOAUTH": (want_password, lambda operator, _: operator("CONFIG", "SET", "requirepass", ""), "--password-file"),
}


def refusals(node):
    return [line for line in node.status()["warnings"] if "has refused what this mount publishes since" in line]


def told(node):
    """Text of status, and doctor's lines for the mount."""
    return node.cli("status", node.cache).out, run([PROGRAM, "doctor", node.cache], node.env(), 60)


@pytest.mark.parametrize("word", FAULTS)
def test_a_server_that_refuses_writes_is_seen_until_it_takes_them(cluster, word):
    begin, end, remedy = FAULTS[word]
    node = cluster.quick("a")
    artefacts.write_graph(node.cache, "before", "published")
    node.sync()
    assert refusals(node) == [] and node.status()["remote"]["refuses_writes"] == ""
    with contextlib.closing(Operator(cluster.redis)) as operator:
        begin(operator, cluster.redis)
        path = artefacts.write_graph(node.cache, "later", "waits")
        (line,) = wait_until(lambda: refusals(node), SEEN_WITHIN, "the refusal")
        remote = node.status()["remote"]
        assert word in line and remedy in line and remote["refuses_since"] in line and "20" in remote["refuses_since"], line
        assert remote["reachable"] and word in remote["refuses_writes"]
        others = [other for other in node.status()["warnings"] if "inductorfs freeze" in other]
        assert all(word == "NOAUTH" and other.endswith("because the server refuses every command") for other in others), others
        text, doctor = told(node)
        assert ", REFUSES WRITES" in text and line in text
        assert doctor.code == 1 and f"BAD      {node.cache}: {line}" in doctor.out, doctor.out
        wait_until(lambda: "mount.remote_refuses" in node.log.read_text(), 10, "the log to say it")
        end(operator, cluster.redis)
        wait_until(lambda: not refusals(node), SEEN_WITHIN + 20, "the refusal's end")
    node.sync()
    assert str(path.relative_to(node.cache)) in published(cluster)
    text, doctor = told(node)
    assert "REFUSES" not in text and "refuse" not in doctor.out, doctor.out
    wait_until(lambda: "mount.remote_takes" in node.log.read_text(), 10, "the log to say it")


def test_it_is_seen_while_nothing_is_to_be_published(cluster):
    """The heartbeat is a write too."""
    node = cluster.quick("a")
    with contextlib.closing(Operator(cluster.redis)) as operator:
        fill(operator, cluster.redis)
        (line,) = wait_until(lambda: refusals(node), SEEN_WITHIN, "the refusal")
        assert "OOM" in line and node.status()["catalog"]["queued"] == 0
        operator("CONFIG", "SET", "maxmemory", "0")
        wait_until(lambda: not refusals(node), SEEN_WITHIN, "the refusal's end")


def test_a_mount_that_publishes_nothing_is_refused_nothing(cluster):
    node = cluster.quick("a", "--no-publish")
    with contextlib.closing(Operator(cluster.redis)) as operator:
        fill(operator, cluster.redis)
        wait_until(lambda: node.status()["remote"]["refuses_writes"], SEEN_WITHIN, "the refusal of the heartbeat")
        assert refusals(node) == []


def test_systemd_is_told(cluster, place, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        (tmp_path / "notify").chmod(0o777)  # as systemd's own
        let_through(tmp_path)
        systemd.settimeout(SEEN_WITHIN)
        words = [PROGRAM, "mount", place.cache, "--foreground", "--store", place.store, "--remote", cluster.redis.url, *cluster.options()]
        with open(place.log, "w", encoding="utf-8") as log:
            daemon = subprocess.Popen([*map(str, words)], env={**place.env(), "NOTIFY_SOCKET": str(tmp_path / "notify")}, stderr=log)

        def heard(part):
            while part not in (line := systemd.recv(4096).decode()):
                pass
            return line

        heard(" answers")
        with contextlib.closing(Operator(cluster.redis)) as operator:
            fill(operator, cluster.redis)
            assert "refuses what is published since 20" in heard("OOM")
            operator("CONFIG", "SET", "maxmemory", "0")
            heard(" answers")
        place.unmount()
        assert daemon.wait(30) == 0

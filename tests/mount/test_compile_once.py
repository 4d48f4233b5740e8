# SPDX-License-Identifier: Apache-2.0
"""`--compile-once`: of the processes of a cluster that want the same graph one compiles it, and the others wait for what it makes."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.processes import wait_until

ONCE = ("--compile-once", "120")
# A rank: it looks for a graph as torch does (codecache.py: iterate_over_candidates), and "compiles" what is not there, which ends when
# the file `go` is there. Meanwhile it uses a tenth of a processor, or waits for that file as for another rank.
RANK = """
import os, signal, sys, time
from inductorfs_testing import artefacts
cache, key, go, meanwhile = sys.argv[1:5]
path = artefacts.graph(key, "compiled")
directory = os.path.join(cache, os.path.dirname(path))
signal.signal(signal.SIGUSR1, lambda *_: print("signal", flush=True))
try:
    found = [name for name in os.listdir(directory) if not name.startswith(".")]
except FileNotFoundError:
    found = []
if found:
    print("hit", open(os.path.join(directory, found[0])).read(), flush=True)
else:
    print("compiles", flush=True)
    while not os.path.exists(go):
        begin = time.process_time()  # of a processor, so that it works as much where it has to wait for one
        while meanwhile == "works" and time.process_time() - begin < 0.05:
            pass
        time.sleep(0.05)
    artefacts.write_graph(cache, key, "compiled")
    print("made", flush=True)
"""


class Rank:
    def __init__(self, node, key, go, meanwhile):
        support = os.path.dirname(os.path.dirname(os.path.abspath(artefacts.__file__)))
        self.node = node
        self._out = node.root / f"rank-{time.monotonic_ns()}"
        with open(self._out, "wb") as out:
            self.child = subprocess.Popen([sys.executable, "-c", RANK, node.cache, key, go, meanwhile], stdout=out, stderr=out,
                                          env=os.environ | {"PYTHONPATH": support})

    @property
    def said(self):
        return self._out.read_text().split("\n")[:-1]

    def compiles(self):
        return "compiles" in self.said

    def ended(self, *said):
        wait_until(lambda: self.child.poll() is not None, 30, f"the end of a rank that said {self.said}")
        assert self.child.returncode == 0, self.said
        assert self.said == list(said)


@pytest.fixture
def ranks(tmp_path):
    """Starts ranks; all end with the test."""
    started = []

    def start(node, key="graph", go=tmp_path / "go", meanwhile="works"):
        started.append(Rank(node, key, go, meanwhile))
        return started[-1]
    start.go = tmp_path / "go"
    yield start
    for rank in started:
        rank.child.kill()
        rank.child.wait(10)


def waits(*nodes):
    return sum(node.counters().get("leases.waits", 0) for node in nodes)


def begin(ranks, first, *others, meanwhile="works"):
    """The rank that compiles, and the others, who wait for it."""
    leader = ranks(first, meanwhile=meanwhile)
    wait_until(leader.compiles, 20, "the first rank")
    before = waits(*set(others))
    rest = [ranks(node) for node in others]
    wait_until(lambda: waits(*set(others)) == before + len(rest), 20, "all others to wait")
    return leader, rest


def test_one_of_eight_ranks_compiles(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, others = begin(ranks, a, a, a, a, b, b, b, b)
    assert not any(rank.said for rank in others)
    ranks.go.touch()
    leader.ended("compiles", "made")
    for rank in others:
        rank.ended("hit compiled")
    late = ranks(b)
    late.ended("hit compiled")
    told = b.cli("stats", b.cache).out
    assert "compile once" in told and "4 waited" in told, told


def test_the_next_rank_compiles_when_the_first_is_killed(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, others = begin(ranks, a, b, b)
    leader.child.kill()  # and it stays a zombie
    wait_until(lambda: sum(rank.compiles() for rank in others) == 1, 30, "another rank to compile")
    ranks.go.touch()
    for rank in others:
        rank.ended(*(["compiles", "made"] if rank.compiles() else ["hit compiled"]))


def test_nobody_waits_for_a_rank_that_waits_itself(cluster, ranks):
    """As in a collective within the compile, for which it needs those that wait for it (docs/operations/compiling-once.md)."""
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, others = begin(ranks, a, a, a, b, b, meanwhile="waits")
    wait_until(lambda: all(rank.compiles() for rank in others), 60, "all others to compile")
    assert [node.counters()["leases.idle"] for node in (a, b)] == [2, 2]
    late = [ranks(a), ranks(b)]
    wait_until(lambda: all(rank.compiles() for rank in late), 10, "those who come later to compile soon")
    assert a.counters()["leases.idle"] == 2, "who comes later waits for nobody"  # on the other host perhaps until its next look
    assert "view.lease_idle" in a.log.read_text() and "let go because it waited itself" in a.cli("stats", a.cache).out
    ranks.go.touch()
    for rank in [leader, *others, *late]:
        rank.ended("compiles", "made")


def test_a_host_that_dies_with_its_ranks_is_not_waited_for(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, (other,) = begin(ranks, a, b)
    a.kill_daemon()
    leader.child.kill()
    begun = time.monotonic()
    wait_until(other.compiles, 30, "the rank of the other host to compile")
    assert time.monotonic() - begun < 20
    ranks.go.touch()
    other.ended("compiles", "made")


def test_a_worker_that_is_replaced_goes_on_waiting(cluster, ranks):
    a, b = cluster.quick("a", *ONCE, "--crash-limit", "0"), cluster.quick("b", *ONCE, "--crash-limit", "0")
    leader, others = begin(ranks, a, a, b)
    for node in (b, a):
        (pid,) = node.daemons()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda node=node, pid=pid: node.daemons() not in ([], [pid]), 20, "another worker")
    assert not any(rank.said for rank in others), [rank.said for rank in others]
    ranks.go.touch()
    leader.ended("compiles", "made")
    for rank in others:
        rank.ended("hit compiled")


def test_a_rank_that_dies_after_a_takeover_is_not_waited_for(cluster, ranks):
    a = cluster.quick("a", *ONCE, "--crash-limit", "0")
    leader, (other,) = begin(ranks, a, a)
    (pid,) = a.daemons()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: a.daemons() not in ([], [pid]), 20, "another worker")
    leader.child.kill()
    begun = time.monotonic()
    wait_until(other.compiles, 40, "the other rank to compile")
    assert time.monotonic() - begun < 30


CROWD = """
import os, sys, threading
threads = [threading.Thread(target=os.listdir, args=(sys.argv[1],)) for _ in range(int(sys.argv[2]))]
for thread in threads:
    thread.start()
print("all", flush=True)
"""


def test_a_crowd_that_waits_holds_up_nobody_else(cluster, ranks):
    a = cluster.quick("a", *ONCE, "--threads", "2")
    leader, _ = begin(ranks, a, a)
    directory = a.cache / os.path.dirname(artefacts.graph("graph", "compiled"))
    crowd = subprocess.Popen([sys.executable, "-c", CROWD, directory, "600"], stdout=subprocess.PIPE)
    try:
        assert crowd.stdout.readline() == b"all\n"
        (a.cache / "a directory").mkdir()
        artefacts.write_graph(a.cache, "another graph", "text")
        assert waits(a) <= 128
        crowd.kill()
        crowd.wait(20)
    finally:
        crowd.kill()
        crowd.stdout.close()
    ranks.go.touch()
    leader.ended("compiles", "made")
    wait_until(lambda: a.cli("unmount", a.cache).code == 0, 20, "the end of the mount")


def test_what_a_rank_waited_for_counts_once(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, (other,) = begin(ranks, a, b)
    ranks.go.touch()
    leader.ended("compiles", "made")
    other.ended("hit compiled")

    def told(node):
        every = json.loads(node.cli("stats", node.cache, "--json").out)["all"]
        return every["asked"], every["missed"], every["made"]
    assert told(a) == (1, 1, 1)
    assert told(b)[1:] == (0, 0), "whether it asked counts only if it is still there when it is looked at"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_a_wait(cluster, ranks, how):
    a = cluster.quick("a", *ONCE)
    leader, (other,) = begin(ranks, a, a)
    other.child.send_signal(how)
    if how == signal.SIGUSR1:  # it has a handler, so the process goes on, and compiles
        wait_until(lambda: other.said == ["signal", "compiles"], 10, "the signal's handler")
    else:
        wait_until(lambda: other.child.poll() == -how, 10, "the end of the rank")
    ranks.go.touch()
    leader.ended("compiles", "made")


def test_nobody_waits_beyond_the_limit(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", "--compile-once", "2")
    leader, (other,) = begin(ranks, a, b)
    wait_until(other.compiles, 20, "the rank whose limit is over")
    assert b.counters()["leases.too_long"] == 1
    assert "view.lease_too_long" in b.log.read_text()
    ranks.go.touch()
    leader.ended("compiles", "made")
    other.ended("compiles", "made")


def test_a_mount_where_somebody_waits_is_in_use(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, (other,) = begin(ranks, a, b)
    done = b.cli("unmount", b.cache)
    assert done.code == 1 and "in use" in done.err, done.err
    ranks.go.touch()
    leader.ended("compiles", "made")
    other.ended("hit compiled")
    assert b.cli("unmount", b.cache).code == 0


def test_without_the_option_all_compile(cluster, ranks):
    a, b = cluster.quick("a"), cluster.quick("b", *ONCE)
    all_of_them = [ranks(a), ranks(a), ranks(b)]
    wait_until(lambda: all(rank.compiles() for rank in all_of_them), 20, "all ranks to compile")


def test_a_server_that_is_away_makes_nobody_wait(cluster, ranks):
    a, b = cluster.quick("a", *ONCE), cluster.quick("b", *ONCE)
    leader, (other,) = begin(ranks, a, b)
    cluster.redis.kill()
    wait_until(other.compiles, 30, "the rank that waited")
    last = ranks(b)
    wait_until(last.compiles, 20, "a rank that came later")
    assert leader.compiles()


def test_a_mount_that_only_reads_can_have_none(cluster):
    place = cluster.node("a", start=False)
    words = ("config", "check", "--remote", cluster.redis.url, "--store", place.store, "--read-only")
    done = place.cli(*words, *ONCE)
    assert done.code == 2 and "--compile-once and --read-only exclude each other" in done.err, done
    assert place.cli(*words, "--compile-once", "0").code == 0

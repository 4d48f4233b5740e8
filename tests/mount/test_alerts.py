# SPDX-License-Identifier: Apache-2.0
"""Each alert of the rules: its cause is made on a real mount, `inductorfs metrics` is taken before and after, and promtool's own rule tests
say what fires when that goes on. Only the time is made: what a mount tells goes from the first figures to the last ones at an even pace."""
import contextlib
import itertools
import json
import os
import re
import shutil

import pytest
from inductorfs_testing import artefacts, environments, mounts, places
from inductorfs_testing.environments import Writer
from inductorfs_testing.fixtures import lack
from inductorfs_testing.hung_files import hung_files
from inductorfs_testing.mounts import appears, suspended
from inductorfs_testing.processes import run, wait_until

PROGRAM = places.program()
RULES = places.REPOSITORY / "packaging/monitoring/inductorfs.rules.yml"
ALERTS = re.findall(r"alert: (\S+)", RULES.read_text())


def scrape(node):
    """{series: value} of the mount. All are asked, as by Prometheus: one that is dead has a series, too."""
    done = run([PROGRAM, "metrics"], node.env(), 60)
    assert done.code == 0, done
    found = {name: float(value) for name, value in re.findall(r"^(inductorfs_\S+) (\S+)$", done.out, re.MULTILINE)}
    return {name: value for name, value in found.items() if f'mountpoint="{node.cache}"' in name}


def values(name, first, last, minutes):
    """In promtool's notation: as it was for ten minutes, then evenly to the last value, or at once where it says yes or no."""
    if last is None:
        return f"{first}+0x9 _x{minutes}"
    start = last if first is None else first
    counts = re.search(r"_(total|bucket|count|sum)\{", name)
    if not counts and {start, last} == {0, 1}:
        return f"{start}+0x9 {last}+0x{minutes}"
    return f"{start}+0x9 {start}{(last - start) / minutes:+.9f}x{minutes}"


def firing(directory, before, after, minutes):
    """The alerts that fire when what is between these scrapes takes so many minutes."""
    if not shutil.which("promtool"):
        lack("promtool is missing (scripts/deps installs it with prometheus)")
    labels = 'instance="node",job="inductorfs"'
    series = [{"series": name.replace("{", "{" + labels + ",", 1), "values": values(name, before.get(name), after.get(name), minutes)}
              for name in sorted({*before, *after})]
    fires = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{minutes + 9}m", "exp_samples": []}
    test = directory / "test.json"  # which is YAML
    test.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m",
                                "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [fires]}]}))
    done = run(["promtool", "test", "rules", test], dict(os.environ), 60)
    told = done.out + done.err
    assert done.code == 0 or "got:" in told, done
    found = set(re.findall(r'alertname="(\w+)"', told)) if done.code else set()
    assert bool(found) == bool(done.code) and found <= set(ALERTS), told
    return found


def fill(node, first, count, size=5000):
    for number in range(first, first + count):
        artefacts.write_graph(node.cache, f"graph {number}", mounts.text(size, number))  # other bytes each time


def ask_anew(node):
    """The server is asked how it is once a minute, and at the beginning of each worker."""
    assert node.cli("upgrade", node.cache).code == 0


@contextlib.contextmanager
def daemon_ends(node, _cluster):
    node.kill_daemon()
    yield 5


@contextlib.contextmanager
def server_ends(node, cluster):
    cluster.redis.kill()
    artefacts.write_graph(node.cache, "last", "value")  # somebody has to ask the server
    wait_until(lambda: not node.status()["remote"]["reachable"], 30, "the mount to notice")
    yield 10


@contextlib.contextmanager
def worker_crashes(node, _cluster):
    node.next_worker(node.kill_worker())
    yield 30


@contextlib.contextmanager
def worker_crashes_again(node, _cluster):
    for _ in range(3):
        if not node.status()["takeover"]["safe_mode"]:
            node.next_worker(node.kill_worker())
    assert node.status()["takeover"]["safe_mode"]
    yield 30


@contextlib.contextmanager
def bytes_are_damaged(node, cluster):
    other = cluster.quick("writer")
    before = mounts.blobs(cluster)
    name = artefacts.write_graph(other.cache, "damaged", mounts.text(5000, 99)).relative_to(other.cache)
    other.sync()
    [key] = set(mounts.blobs(cluster)) - set(before)
    cluster.redis.command("SETRANGE", key, mounts.blobs(cluster)[key] - 3, b"\x00\xff\x00")
    wait_until(lambda: not (node.cache / name).exists() and node.counters().get("fetch.corrupt"), 20, "the bytes to be refused")
    yield 30


@contextlib.contextmanager
def packages_hang(node, cluster):
    packages = environments.make(cluster.directory / "environment")
    with hung_files(packages, cluster.directory / "hung") as hang, Writer(node.cache / "team", cluster.directory / "hung") as stuck:
        hang()
        stuck.write("stuck")
        wait_until(lambda: node.status()["unknown_programs"], 40, "the program to be known as not known")
        yield 30


@contextlib.contextmanager
def server_takes_nothing(node, cluster):
    cluster.redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "100kb")
    artefacts.write_graph(node.cache, "kept", "value")
    wait_until(lambda: node.counters().get("seal.sealed"), 20, "the file to be complete")
    ask_anew(node)
    artefacts.write_graph(node.cache, "kept, too", "value")
    wait_until(lambda: node.counters().get("seal.sealed") and node.status()["remote"].get("memory_limit"), 20, "the mount to know")
    yield 180


@contextlib.contextmanager
def cluster_is_frozen(node, _cluster):
    assert node.cli("freeze", node.cache, "--why", "a test").code == 0
    yield 90


@contextlib.contextmanager
def queue_grows(node, cluster):
    cluster.redis.kill()
    fill(node, 0, 1200, 100)
    wait_until(lambda: node.status()["catalog"]["queued"] == 1200, 120, "all to be queued")
    yield 400


@contextlib.contextmanager
def queue_is_full(node, cluster):
    cluster.redis.kill()
    fill(node, 0, 80, 100)
    wait_until(lambda: node.counters().get("publish.dropped"), 60, "groups to be dropped")
    yield 30


@contextlib.contextmanager
def server_is_slow(node, cluster):
    other = cluster.quick("writer")
    name = artefacts.write_graph(other.cache, "late", "value").relative_to(other.cache)
    other.sync()
    wait_until(lambda: node.status()["catalog"]["entries"], 20, "the entry")
    with suspended(cluster.redis):
        assert not (node.cache / name).exists()
    wait_until(lambda: node.status()["remote"]["reachable"], 30, "the server to be back")
    yield 40


@contextlib.contextmanager
def store_is_small(node, _cluster):
    """From when it is full. Keys that nobody has had: another candidate for one may stay here."""
    numbers = itertools.count(0, 20)

    def evict(more):
        wanted = node.counters().get("store.evicted", 0) + more
        while node.counters().get("store.evicted", 0) < wanted:
            fill(node, next(numbers), 20, 600_000)
            node.sync(60)

    evict(1)
    full = scrape(node)
    evict(220)
    yield 120, full


@contextlib.contextmanager
def node_vanishes(node, cluster):
    other = cluster.quick("writer")
    seen = "ifs1:{nodes}:seen"
    wait_until(lambda: len(cluster.redis.command("ZRANGE", seen, 0, -1)) == 2, 20, "both to be remembered")
    other.kill_daemon()
    [name] = [one for one in cluster.redis.command("ZRANGE", seen, 0, -1) if str(other.cache).encode() in one]
    at = float(cluster.redis.command("ZSCORE", seen, name))
    cluster.redis.command("ZADD", seen, int(at) - 3_600_000, name)  # an hour has passed
    for record in cluster.redis.keys("ifs1:{nodes}:node:*"):
        if str(other.cache).encode() in cluster.redis.command("GET", record):
            cluster.redis.command("DEL", record)
    ask_anew(node)
    wait_until(lambda: node.status()["remote"].get("missing_nodes") == 1, 20, "it to be missing")
    text = node.cli("nodes", node.cache).out
    assert re.search(rf"{re.escape(str(other.cache))} .*60 min +gone since 20", text), text
    assert "1 node MISSING (inductorfs nodes)" in node.cli("status", node.cache).out
    yield 30


@contextlib.contextmanager
def server_fills(node, cluster):
    fill(node, 0, 60)
    node.sync()
    used = int(re.search(rb"used_memory:(\d+)", cluster.redis.command("INFO", "memory"))[1])
    cluster.redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-ttl", "maxmemory", int(used * 1.05))
    ask_anew(node)
    wait_until(lambda: node.status()["remote"].get("memory_limit"), 20, "the mount to know")
    yield 60


@contextlib.contextmanager
def server_evicts(node, cluster):
    fill(node, 0, 60)
    node.sync()
    used = int(re.search(rb"used_memory:(\d+)", cluster.redis.command("INFO", "memory"))[1])
    cluster.redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-ttl", "maxmemory", int(used - 100_000))
    fill(node, 60, 20)
    node.sync()
    cluster.redis.command("CONFIG", "SET", "maxmemory", "100mb")
    ask_anew(node)
    wait_until(lambda: node.status()["remote"].get("evicted_keys"), 20, "the mount to know")
    yield 60


@contextlib.contextmanager
def work_as_usual(node, cluster):
    other = cluster.quick("writer")
    name = artefacts.write_graph(other.cache, "of another", "value").relative_to(other.cache)
    other.sync()
    assert appears(node.cache / name).read_text() == "value"
    fill(node, 10, 10)
    node.sync()
    yield 300


CAUSES = [
    (work_as_usual, (), set()),
    (daemon_ends, (), {"InductorfsDown"}),
    (server_ends, (), {"InductorfsRemoteUnreachable"}),
    (worker_crashes, (), {"InductorfsWorkerCrashed"}),
    (worker_crashes_again, ("--crash-limit", "1"), {"InductorfsWorkerCrashed", "InductorfsSafeMode", "InductorfsRemoteUnreachable"}),
    (bytes_are_damaged, ("--prefetch", "0"), {"InductorfsWrongBytes"}),
    (packages_hang, ("--writers", "learned"), {"InductorfsUnknownPrograms"}),
    (server_takes_nothing, (), {"InductorfsNothingPublished", "InductorfsServerNearlyFull"}),
    (cluster_is_frozen, (), {"InductorfsFrozen"}),
    (queue_grows, (), {"InductorfsQueueGrows", "InductorfsRemoteUnreachable", "InductorfsNothingPublished"}),
    (queue_is_full, ("--queue-limit", "40"), {"InductorfsGroupsDropped", "InductorfsRemoteUnreachable"}),
    (server_is_slow, ("--prefetch", "0", "--lookup-patience", "3000"), {"InductorfsLookupsSlow"}),
    (store_is_small, ("--store-limit", "64M"), {"InductorfsStoreFull"}),
    (node_vanishes, (), {"InductorfsNodeMissing"}),
    (server_fills, (), {"InductorfsServerNearlyFull"}),
    (server_evicts, (), {"InductorfsServerEvicts"}),
]


def test_each_alert_has_a_cause():
    assert set().union(*(expected for _, _, expected in CAUSES)) == set(ALERTS)


@pytest.mark.parametrize(("cause", "options", "expected"), CAUSES, ids=[cause.__name__ for cause, _, _ in CAUSES])
def test_what_fires(cluster, tmp_path, cause, options, expected):
    cluster.directory.chmod(0o755)
    node = cluster.quick("node", *options)
    (node.cache / "team").mkdir()
    before = scrape(node)
    assert before.get(f'inductorfs_up{{mountpoint="{node.cache}"}}') == 1
    with cause(node, cluster) as made:
        after = scrape(node)
    minutes, before = made if isinstance(made, tuple) else (made, before)
    assert firing(tmp_path, before, after, minutes) == expected

# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed and replaced without end while many processes work and publish. INDUCTORFS_STRESS_SECONDS and
INDUCTORFS_STRESS_THREADS: how long, and how many; for long runs under a sanitizer (CONTRIBUTING.md)."""
import contextlib
import os
import random
import signal
import time
from pathlib import Path

from inductorfs_testing import compare
from inductorfs_testing.load import Load
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import wait_until
from inductorfs_testing.takeovers import HEALTHY

SECONDS = float(os.environ.get("INDUCTORFS_STRESS_SECONDS", 5))
PROCESSES = int(os.environ.get("INDUCTORFS_STRESS_THREADS", 8))
SAMPLE = 200
TAKEOVER = 0.15  # seconds, in which most are over


def rest(chance):
    """A worker's next end comes at any moment of its life."""
    since, length = time.monotonic(), HEALTHY + chance.choice((0.0, 0.2, 2.0)) * chance.random()
    wait_until(lambda: time.monotonic() - since > length, what="some age of the worker")


def arrived(node, other, results, chance):
    """All that the processes made is on both nodes, byte for byte."""
    made = [one for result in results for one in result["artefacts"]]
    node.sync(120)
    other.catch_up(node, 60)
    for path, content in chance.sample(made, min(SAMPLE, len(made))):
        for place in (Path(path), other.cache / Path(path).relative_to(node.cache)):
            assert appears(place).read_bytes() == content.encode(), place
    return len(made)


def test_workers_that_die_while_they_take_over(cluster, tmp_path):
    """What two crashes in a row leave is not what one leaves: a worker dies at a random moment of its takeover."""
    node, other = cluster.quick("a", "--crash-limit", "0"), cluster.quick("b")
    chance, pairs = random.Random(PROCESSES), 0
    with Load(node.cache, tmp_path / "load", PROCESSES) as load:
        load.advance(20)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not pairs:
            first, length = node.kill_worker(), TAKEOVER * chance.random()
            second = wait_until(lambda old=first: [pid for pid in node.daemons() if pid != old], 20, "the next one", pause=0.001)[0]
            since = time.monotonic()
            wait_until(lambda: time.monotonic() - since > length, what="some moment of its takeover", pause=0.001)
            os.kill(second, signal.SIGKILL)
            node.next_worker(second)
            pairs += 1
            rest(chance)
            load.advance(1)
        results = load.finish()
    errors = [error for result in results for error in result["errors"]]
    assert errors == [], "\n".join([*errors, f"{pairs} pairs of kills", node.log_tail(200)])
    made = arrived(node, other, results, chance)
    print(f"\n{sum(result['operations'] for result in results)} operations, {made} artefacts, {pairs} pairs of kills")


def test_kills_and_upgrades_under_much_load(cluster, tmp_path):
    node = cluster.quick("a", "--crash-limit", "0")
    other = cluster.quick("b")
    chance, kills, upgrades = random.Random(PROCESSES), 0, 0
    with Load(node.cache, tmp_path / "load", PROCESSES) as load:
        load.advance(20)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not (kills and upgrades):
            if kills and chance.random() < 0.3:
                done = node.cli("upgrade", node.cache)
                assert done.code == 0, done.err
                upgrades += 1
            else:
                node.next_worker(node.kill_worker())
                kills += 1
            rest(chance)
            load.advance(1)
        results = load.finish()
    errors = [error for result in results for error in result["errors"]]
    assert errors == [], "\n".join([*errors, f"{kills} kills, {upgrades} upgrades", node.log_tail(200)])
    told = node.status()["takeover"]
    assert (told["restarts"], told["upgrades"], told["upgrades_failed"]) == (kills, upgrades, 0), told
    made = arrived(node, other, results, chance)
    print(f"\n{PROCESSES} processes, {sum(result['operations'] for result in results)} operations, {made} artefacts, {kills} kills, "
          f"{upgrades} upgrades, longest call {max(result['longest'] for result in results):.2f} s")
    for each in (node, other):
        each.unmount()
        assert compare.mounts_below(each.root) == []


def test_any_process_of_a_mount_may_be_killed_at_any_moment(cluster, tmp_path):
    """All but the supervisor, without waiting for the next one; jobs notice nothing, and in the end all are there again."""
    node, other = cluster.quick("a", "--crash-limit", "0"), cluster.quick("b")
    kinds = {"worker": node.daemons, "messenger": node.messengers, "examiner": node.examiners, "mounter": node.mounters}
    if os.geteuid() == 0:
        kinds["proxy"] = node.proxies
    chance, killed = random.Random(PROCESSES), dict.fromkeys(kinds, 0)
    with Load(node.cache, tmp_path / "load", PROCESSES) as load:
        load.advance(20)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not all(killed.values()):
            kind = chance.choice(list(kinds))
            # The next one is a copy of what started it until it becomes its own program: that is a life, too.
            for pid in kinds[kind]():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed[kind] += 1
            since, length = time.monotonic(), chance.choice((0.01, 0.2, 1.5)) * chance.random()
            wait_until(lambda: time.monotonic() - since > length, what="another moment", pause=0.001)
            load.advance(1)
        results = load.finish()
    errors = [error for result in results for error in result["errors"]]
    assert errors == [], "\n".join([*errors, str(killed), node.log_tail(200)])
    for kind, pids in kinds.items():  # one whose predecessors were killed young may be a minute away
        wait_until(lambda pids=pids: len(pids()) == 1, 90, f"one {kind}")
    made = arrived(node, other, results, chance)
    print(f"\n{sum(result['operations'] for result in results)} operations, {made} artefacts, killed: {killed}, "
          f"longest call {max(result['longest'] for result in results):.2f} s")

# SPDX-License-Identifier: Apache-2.0
"""What `sync` says is so on the server that the cluster has, although the master before it goes on answering for some seconds
after a planned failover, and after a server has lost all. (For `purge`: tests/mount/orders_test.cc.)"""
import threading

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears, remount
from inductorfs_testing.network import NetworkCluster
from inductorfs_testing.processes import wait_until
from inductorfs_testing.sentinel import SentinelGroup

AFTER_THE_FAILOVER = 40  # artefacts, each with a sync; the Sentinels make the old master a replica some seconds later
BEFORE = 10


@pytest.fixture
def cluster():
    with NetworkCluster() as made:
        yield made


@pytest.fixture
def group(cluster):
    with SentinelGroup(cluster.network.address, cluster.network.free_port, down_after=30) as made:
        yield made


class Failover(threading.Thread):
    """A planned one: the old master answers all the time."""

    def __init__(self, group):
        super().__init__()
        self._group, self._old = group, group.master()
        self.promoted = None
        self.start()

    def run(self):
        self.promoted = self._group.fail_over(self._old)


def entries(server):
    return sum(int(server.command("HLEN", key)) for key in server.keys("*:idx"))


def test_what_sync_acknowledges_during_a_planned_failover_is_in_the_cluster(cluster, group):
    a = cluster.host("a", remote=group.url)
    made = {}

    def write(number):
        path = artefacts.write_graph(a.cache, f"key {number}", f"value {number}")
        made[path.relative_to(a.cache)] = f"value {number}"
        a.sync(60)

    for number in range(BEFORE):
        write(number)
    failover, number, left = Failover(group), BEFORE, AFTER_THE_FAILOVER
    while left:
        is_over = not failover.is_alive()
        write(number)
        number, left = number + 1, left - is_over
        if is_over:  # sync has returned: it is all there now, whoever still answers
            assert entries(failover.promoted) == len(made)
    assert failover.promoted
    wait_until(group.in_step, 60, "the old master to follow the new one")
    a.sync(60)
    b = cluster.host("b", remote=group.url)
    for path, value in made.items():
        assert appears(b.cache / path, 30).read_text() == value


def test_a_server_that_lost_all_gets_again_what_its_hosts_have(cluster):
    a, b = (cluster.host(name) for name in "ab")
    paths = [artefacts.write_graph(a.cache, f"key {number}", f"value {number}").relative_to(a.cache) for number in range(20)]
    artefacts.triton_compile(a.cache, "kernel", "a")
    a.sync(60)
    a.unmount()
    remount(a, cluster)  # it has read all of the cluster's histories then
    cluster.redis.command("FLUSHALL")
    late = artefacts.write_graph(a.cache, "late", "came later").relative_to(a.cache)
    wait_until(lambda: "view.published_again" in a.log.read_text(), 60, "a to notice")
    a.sync(60)
    for number, path in enumerate(paths):
        assert appears(b.cache / path, 30).read_text() == f"value {number}"
    assert appears(b.cache / late, 30).read_text() == "came later"
    assert appears(b.cache / "triton/0" / artefacts.triton_key("kernel") / "__grp__k.json", 30)


def test_sync_does_not_believe_a_server_that_has_just_lost_all(cluster):
    a = cluster.host("a")
    for number in range(10):
        artefacts.write_graph(a.cache, f"key {number}", f"value {number}")
        a.sync(60)
        cluster.redis.command("FLUSHALL")
        a.sync(60)
        assert entries(cluster.redis) == number + 1, "at once, though nothing was waiting to be published"

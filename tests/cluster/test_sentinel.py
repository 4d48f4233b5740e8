# SPDX-License-Identifier: Apache-2.0
"""Mounts whose server has a replica and Sentinels: a failover is misses for a moment and nothing else."""
import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears
from inductorfs_testing.network import NetworkCluster
from inductorfs_testing.processes import wait_until
from inductorfs_testing.sentinel import SentinelGroup

CATCHES_UP_WITHIN = 45.0


@pytest.fixture
def cluster():
    with NetworkCluster() as made:
        yield made


@pytest.fixture
def group(cluster):
    with SentinelGroup(cluster.network.address, cluster.network.free_port) as made:
        yield made


def kill(server):
    server.kill()
    return server.start


def hang(server):
    server.suspend()
    return server.resume


@pytest.mark.parametrize("fault", [kill, hang])
def test_a_failover_moves_the_mounts_to_the_promoted_server(cluster, group, fault):
    a, b = (cluster.host(name, remote=group.url) for name in ("a", "b"))
    before = artefacts.write_graph(a.cache, "before", "value").relative_to(a.cache)
    a.sync()
    assert appears(b.cache / before).read_text() == "value"
    wait_until(group.in_step, 20, "the replica")
    old = group.master()
    heal = fault(old)
    own = artefacts.write_graph(a.cache, "meanwhile", "of a")
    assert own.read_text() == "of a" and (b.cache / before).read_text() == "value"
    promoted = group.wait_for_other_master(old)
    a.sync(60)
    assert appears(b.cache / own.relative_to(a.cache), CATCHES_UP_WITHIN).read_text() == "of a"
    assert any(promoted.keys("*:idx"))
    heal()
    wait_until(group.in_step, 60, "the old master to follow the new one")
    after = artefacts.write_graph(b.cache, "after", "of b").relative_to(b.cache)
    b.sync(60)
    assert appears(a.cache / after, CATCHES_UP_WITHIN).read_text() == "of b"
    for node in (a, b):
        assert node.status()["remote"]["reachable"]


def test_sentinels_that_know_no_such_master_are_said(cluster, group):
    node = cluster.host("a", remote=group.url.rpartition("/")[0] + "/nobody")
    (node.cache / "x").write_text("works all the same")
    told = node.status()["remote"]
    assert not told["reachable"] and "no master nobody" in str(told)

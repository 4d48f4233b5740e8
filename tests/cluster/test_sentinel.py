# SPDX-License-Identifier: Apache-2.0
"""Mounts whose server has a replica and Sentinels: a failover is misses for a moment and nothing else."""
import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.certificates import Authority
from inductorfs_testing.mounts import appears
from inductorfs_testing.network import NetworkCluster
from inductorfs_testing.processes import wait_until
from inductorfs_testing.redis_server import hang, kill
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


@pytest.fixture
def tls_group(cluster):
    with SentinelGroup(cluster.network.address, cluster.network.free_port, tls=True) as made:
        yield made


@pytest.mark.parametrize("fault", [kill, hang])
def test_a_failover_moves_the_mounts_to_the_promoted_server(cluster, group, fault):
    a, b = (cluster.host(name, remote=group.url) for name in ("a", "b"))
    follow_a_failover(group, fault, a, b)


def test_a_failover_among_servers_that_speak_tls_alone(cluster, tls_group):
    """rediss+sentinel:// is TLS to the Sentinels and to the servers that they name, all checked against one authority."""
    assert tls_group.url.startswith("rediss+sentinel://")
    a, b = (cluster.host(name, "--ca-file", tls_group.ca_file, remote=tls_group.url) for name in ("a", "b"))
    follow_a_failover(tls_group, kill, a, b)


def test_sentinels_of_another_authority_are_not_believed(cluster, tls_group, tmp_path):
    stranger = Authority(tmp_path / "stranger")
    node = cluster.host("a", "--ca-file", stranger.ca_file, remote=tls_group.url)
    (node.cache / "x").write_text("works all the same")
    told = node.status()["remote"]
    assert not told["reachable"] and "certificate" in str(told)
    plain = cluster.host("b", remote=tls_group.url.replace("rediss+", "redis+"))
    assert not plain.status()["remote"]["reachable"], "none of them speaks plainly"


def follow_a_failover(group, fault, a, b):
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

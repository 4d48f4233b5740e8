# SPDX-License-Identifier: Apache-2.0
"""Mounts on a Redis Cluster: what they do on one server they do there, while slots move and masters fail."""
import json
import os
import time

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears
from inductorfs_testing.network import NetworkCluster
from inductorfs_testing.processes import PATIENCE, wait_until
from inductorfs_testing.redis_cluster import RedisCluster, slot_of
from inductorfs_testing.redis_server import hang, kill

APPEARS_WITHIN = 10.0
CATCHES_UP_WITHIN = 45.0
DEADLINE = 5.0 * PATIENCE


# One for all tests but the storm: each leaves it whole.
@pytest.fixture(scope="module")
def cluster():
    with NetworkCluster() as made:
        yield made


@pytest.fixture(scope="module")
def group(cluster):
    with RedisCluster(cluster.network.address, cluster.network.free_port) as made:
        yield made


@pytest.fixture(scope="module")
def pair(cluster, group):
    return [cluster.host(name, remote=group.url) for name in ("a", "b")]


def share(writer, reader, what, within=APPEARS_WITHIN):
    name = artefacts.write_graph(writer.cache, what, what * 100).relative_to(writer.cache)
    writer.sync(60)
    assert appears(reader.cache / name, within).read_text() == what * 100
    return name


def test_two_mounts_share_what_lies_on_three_servers(group, pair):
    a, b = pair
    for index in range(20):
        artefacts.write_atomic(a.cache, artefacts.code(f"many {index}"), f"# {index}\n")
    kernel = artefacts.triton_compile(a.cache, "kernel", "a")
    share(a, b, "graph")
    for index in range(20):
        assert appears(b.cache / artefacts.code(f"many {index}"), APPEARS_WITHIN).read_text() == f"# {index}\n"
    assert appears(b.cache / kernel.relative_to(a.cache) / "__grp__k.json", APPEARS_WITHIN)
    assert sorted(artefacts.triton_read(b.cache, "kernel")) == sorted(artefacts.TRITON_FILES)
    assert {group.owner(slot_of(key)) for key in group.keys("*:b:*")} == set(group.masters()), "blobs are spread"
    told = b.status()["remote"]
    assert told["reachable"] and told["address"] == group.url and not told["last_error"]


def test_what_an_operator_asks_is_answered_for_each_master(cluster, group, pair):
    a, _ = pair
    found = json.loads(a.cli("doctor", "--json", "--remote", group.url).out)
    for server in group.masters():
        assert any(f"{group.address}:{server.port} is Redis" in one["what"] for one in found), found
    assert "BAD" not in {one["kind"] for one in found}, found
    listed = a.cli("nodes", "--json", "--remote", group.url)
    assert listed.code == 0 and listed.out.count('"id"') >= 2, listed
    named_alone = f"redis://{group.address}:{group.servers[0].port}"
    found = json.loads(a.cli("doctor", "--json", "--remote", named_alone).out)
    assert any(one["kind"] == "BAD" and "redis+cluster://" in one["remedy"] for one in found), found
    refused = cluster.host("c", remote=group.url)
    refused.unmount()
    said = refused.cli("mount", refused.cache, "--store", refused.store, "--remote", named_alone, *cluster.options())
    assert said.code != 0 and "redis+cluster://" in said.err, said


def test_slots_that_move_are_followed(group, pair):
    a, b = pair
    share(a, b, "before the moves")
    for round_ in range(3):
        slots = {slot_of(key) for key in group.keys("*:idx")}
        for slot in slots:
            now = group.owner(slot)
            group.move(slot, next(server for server in group.masters() if server is not now))
        share(a, b, f"after move {round_}")
        share(b, a, f"and back {round_}")
    for node in pair:
        assert node.status()["remote"]["reachable"]


@pytest.mark.parametrize("fault", [kill, hang])
def test_a_master_that_fails_is_replaced_and_nobody_waits(group, pair, fault):
    a, b = pair
    what = fault.__name__
    before = share(a, b, f"before {what}")
    scopes = group.keys("*:idx")
    old = group.owner(slot_of(scopes[0]))
    heal = fault(old)
    slowest = 0.0
    for index in range(50):
        begin = time.monotonic()
        artefacts.write_atomic(a.cache, artefacts.code(f"meanwhile {what} {index}"), f"# {index}\n")
        assert not os.path.lexists(b.cache / artefacts.code(f"nowhere {what} {index}"))
        assert (b.cache / before).read_text() == f"before {what}" * 100
        slowest = max(slowest, time.monotonic() - begin)
    assert slowest < DEADLINE
    if fault is kill:
        group.wait_for_replacement(old)
    else:
        wait_until(lambda: group._has_failed(old), 60, "the failover")
    a.sync(60)
    for index in range(50):
        assert appears(b.cache / artefacts.code(f"meanwhile {what} {index}"), CATCHES_UP_WITHIN)
    heal()
    wait_until(group.in_step, 60, "the old master to follow the new one")
    share(b, a, f"after {what}", CATCHES_UP_WITHIN)
    for node in pair:
        assert node.status()["remote"]["reachable"]

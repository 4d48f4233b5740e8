# SPDX-License-Identifier: Apache-2.0
"""Eight nodes with one Redis, all of which is killed, cut off, delayed and emptied at random while jobs work: each promise is
an invariant that is checked at every operation, and what was acknowledged must appear everywhere afterwards.

INDUCTORFS_CHAOS_SECONDS: how long each storm lasts. INDUCTORFS_CHAOS_SEED: repeats the faults of a run (not its timing)."""
import os
import random

import pytest
from inductorfs_testing.chaos import Chaos, make_cluster
from inductorfs_testing.processes import wait_until
from inductorfs_testing.sentinel import SentinelGroup

SECONDS = float(os.environ.get("INDUCTORFS_CHAOS_SECONDS", 40))
SEED = int(os.environ.get("INDUCTORFS_CHAOS_SEED", random.randrange(1_000_000)))
# Each node keeps all that it wrote: long storms write slower, so that the stores stay at some GiB.
PAUSE = max(0.01, SECONDS / 600 * 0.05)


@pytest.fixture
def chaos():
    with make_cluster() as cluster:
        made = Chaos(cluster, SEED, PAUSE)
        try:
            yield made
        finally:
            made.close()


def storm(chaos, seconds, server_faults, sets_may_go=False):
    """The workload under faults, and all that must hold then."""
    print(f"\nINDUCTORFS_CHAOS_SEED={SEED}", flush=True)
    chaos.work(sets_may_go)
    wait_until(lambda: all(chaos.own(node) for node in chaos.nodes), 30, "the first artefacts")
    try:
        chaos.storm(seconds, server_faults)
        chaos.calm()
    finally:
        chaos.rest()
        print(chaos.report(), flush=True)
    broken = chaos.broken()
    assert not broken, f"{len(broken)} broken promises:\n" + "\n".join(map(str, broken[:20])) + \
        "\nfaults:\n" + "\n".join(chaos.told[-60:])
    names, kernels = chaos.check_afterwards()
    print(f"{names} names and {kernels} kernels were acknowledged and are everywhere", flush=True)
    assert names > 0


def test_a_server_that_keeps_its_data(chaos):
    chaos.start()
    storm(chaos, SECONDS, [chaos.stop_server, chaos.kill_server])


def test_a_server_that_loses_its_data_and_a_link_that_damages_it(chaos):
    chaos.start()
    hostile = chaos.disturb_relay
    chaos.disturb_relay = lambda node: hostile(node, hostile=chaos.random.random() < 0.4)
    storm(chaos, SECONDS / 2, [chaos.stop_server, chaos.kill_server, chaos.empty_server, chaos.flush_server],
          sets_may_go=True)


def test_failovers_by_sentinel_and_by_an_address_that_moves(chaos):
    network = chaos.cluster.network
    with SentinelGroup(network.address, network.free_port) as group:
        chaos.start(sentinels=group)
        storm(chaos, SECONDS, [chaos.fail_over], sets_may_go=True)

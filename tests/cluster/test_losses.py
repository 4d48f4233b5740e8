# SPDX-License-Identifier: Apache-2.0
"""As test_chaos.py, with a server that loses what it has: the cluster comes back with other artefacts, and other Triton sets, than
its hosts have seen."""
from inductorfs_testing.redis_cluster import RedisCluster
from inductorfs_testing.sentinel import SentinelGroup


def test_a_server_that_loses_its_data_and_a_link_that_damages_it(chaos, storm):
    chaos.start()
    hostile = chaos.disturb_relay
    chaos.disturb_relay = lambda node: hostile(node, hostile=chaos.random.random() < 0.4)
    storm(chaos, chaos.stop_server, chaos.kill_server, chaos.empty_server, chaos.flush_server, share=0.5, sets_may_go=True)


def test_failovers_by_sentinel_and_by_an_address_that_moves(chaos, storm):
    network = chaos.cluster.network
    with SentinelGroup(network.address, network.free_port, down_after=600) as group:
        chaos.start(sentinels=group)
        storm(chaos, chaos.fail_over, sets_may_go=True)


def test_failovers_of_the_masters_of_a_redis_cluster(chaos, storm):
    network = chaos.cluster.network
    with RedisCluster(network.address, network.free_port) as servers:
        chaos.start(count=4, relayed=0, sentinels=servers)
        storm(chaos, lambda: servers.strike(chaos), share=0.5, sets_may_go=True)

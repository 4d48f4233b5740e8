# SPDX-License-Identifier: Apache-2.0
"""Redis goes away, and the cluster is emptied, while an engine is in the middle of its start. This file is the last of the ring: it empties the
cluster that all others use."""


def answers(outcome, cold):
    assert outcome.told["tokens"] == outcome.told["again"] == cold["index"][0].told["tokens"], outcome.told


def test_redis_dies_and_the_cluster_is_empty_when_it_is_back(pods, cold):
    """In one engine: it has read the index, and next are the artifacts, without which vLLM dies."""
    pod = pods.pod("emptied")
    engine = pod.begin("index", holds=["read:*_subgraph_0", "read:*_subgraph_2"])
    redis = pods.cluster.redis
    engine.held(0)
    redis.kill()
    engine.go(0)
    engine.held(1)
    redis.start()
    redis.command("FLUSHALL")
    engine.go(1)
    outcome = engine.good()
    assert outcome.compiled == {}, outcome.compiled
    answers(outcome, cold)

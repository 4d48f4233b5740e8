# SPDX-License-Identifier: Apache-2.0
"""torch's own remote caches beside the mount, in the same Redis: neither disturbs the other."""
import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster

JOBS = places.WORKLOADS / "cpu_jobs.py"
JOB = ("--jobs", "dynamic")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(torch="2.15", environment={"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}, patient=True) as made:
        yield made


def test_torchs_own_remote_cache_and_the_mount_in_one_redis(cluster):
    own = {"TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": "1",
           "TORCHINDUCTOR_REDIS_URL": cluster.redis.url, "PYTHONPATH": places.WORKLOADS / "redis_client"}
    a, b = cluster.node("a"), cluster.node("b")
    cold = a.run(JOBS, *JOB, **own).json
    assert cold["counters"]["inductor.fxgraph_cache_miss"] == 1
    kept = {key: cluster.redis.command("GET", key) for key in cluster.redis.keys("pt2:*")}
    assert kept, "torch has put something there, else this file says nothing"
    a.sync()
    b.catch_up(a)

    for environment in (own, {}):
        warm = b.run(JOBS, *JOB, **environment).json
        assert warm["results"] == cold["results"]
        assert warm["counters"]["inductor.fxgraph_cache_hit"] == 1
    alone = cluster.node("c", remote=None).run(JOBS, *JOB, **own).json
    assert alone["results"] == cold["results"], "torch's cache alone, on a mount that shares nothing"
    assert alone["counters"].get("inductor.fxgraph_cache_hit") == 1
    assert kept == {key: cluster.redis.command("GET", key) for key in cluster.redis.keys("pt2:*")}

# SPDX-License-Identifier: Apache-2.0
"""`--compile-once` with real torch: of ranks on two nodes that begin one job at the same time one compiles each graph."""
import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster

JOBS = places.WORKLOADS / "cpu_jobs.py"
RANKS, GRAPHS = 4, 1


@pytest.fixture(scope="module", params=["2.9", "2.15"])
def cluster(request):
    with Cluster(torch=request.param, environment={"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}, patient=True) as made:
        yield made


def test_of_four_ranks_one_compiles(cluster):
    nodes = [cluster.node(name, options=("--compile-once", "300")) for name in ("a", "b")]
    jobs = [nodes[rank % 2].begin(JOBS, "--jobs", "dynamic") for rank in range(RANKS)]
    told = [job.wait(300).json for job in jobs]
    assert len({str(one["results"]) for one in told}) == 1
    missed = [one["counters"].get("inductor.fxgraph_cache_miss", 0) for one in told]
    hit = [one["counters"].get("inductor.fxgraph_cache_hit", 0) for one in told]
    assert (sum(missed), sum(hit)) == (GRAPHS, GRAPHS * (RANKS - 1)), (missed, hit)
    served = sum(node.counters().get("leases.served", 0) for node in nodes)
    assert served <= GRAPHS * (RANKS - 1)  # a rank that comes late enough finds the artefact
    for node in nodes:
        assert node.counters().get("leases.too_long", 0) == 0

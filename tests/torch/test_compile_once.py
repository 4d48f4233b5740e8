# SPDX-License-Identifier: Apache-2.0
"""`--compile-once` with real torch: of ranks on two nodes that begin one job at the same time one compiles each graph."""
import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster

JOBS, COLLECTIVE = (places.WORKLOADS / f"{name}.py" for name in ("cpu_jobs", "collective"))
RANKS, GRAPHS = 4, 1
NO_HEADERS = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
GLOO = {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.fixture(scope="module", params=["2.9", "2.15"])
def cluster(request):
    with Cluster(torch=request.param, environment=NO_HEADERS, patient=True,
                 declared=request.param == "2.9") as made:
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


def run_collective(cluster, *words):
    """Two ranks on two nodes: what each told, and the nodes."""
    nodes = [cluster.node(f"{name}{len(words)}", options=("--compile-once", "600", "--prefix", f"collective{len(words)}")) for name in "ab"]
    jobs = [node.begin(COLLECTIVE, rank, 2, cluster.directory / f"meeting{len(words)}", *words, **GLOO) for rank, node in enumerate(nodes)]
    told = [job.wait(300).json for job in jobs]
    assert [one["result"] for one in told] == [33.0, 33.0]
    assert [node.counters().get("leases.too_long", 0) for node in nodes] == [0, 0]
    return [one["counters"] for one in told], nodes


@pytest.fixture(scope="module")
def newest():
    """The ranks of torch 2.15 decide together; a collective needs all of them (docs/operations/compiling-once.md)."""
    with Cluster(torch="2.15", environment=NO_HEADERS, patient=True) as made:
        yield made


def test_ranks_that_decide_together_whether_all_have_found_it_compile_once(newest):
    counters, _ = run_collective(newest)
    missed, hit = (sum(one.get(f"inductor.fxgraph_cache_{what}", 0) for one in counters) for what in ("miss", "hit"))
    assert (missed, hit) == (1, 1), counters


def test_a_collective_within_the_compile_stops_the_ranks_for_seconds_only(newest):
    """The rank that compiles waits for the one that waits for it."""
    counters, nodes = run_collective(newest, "--within")
    assert [one.get("inductor.fxgraph_cache_miss") for one in counters] == [1, 1], counters
    assert sum(node.counters().get("leases.idle", 0) for node in nodes) == 1
    assert any("view.lease_idle" in node.log.read_text() for node in nodes)

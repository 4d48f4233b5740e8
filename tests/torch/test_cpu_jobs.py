# SPDX-License-Identifier: Apache-2.0
"""A training step, inference and dynamic shapes on the CPU. The second node compiles nothing."""
import json
import time

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster

JOBS = places.WORKLOADS / "cpu_jobs.py"
GRAPHS, AUTOGRAD_ENTRIES = 4, 3


@pytest.fixture(scope="module", params=["2.15", "2.9"])
def runs(request):
    """The same jobs, first on node a, then on node b, which was mounted before a compiled anything. The older torch is declared."""
    with Cluster(torch=request.param, patient=True, declared=request.param == "2.9") as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        begin = time.monotonic()
        cold = a.run(JOBS).json
        cold_seconds = time.monotonic() - begin
        compiled = a.compilers.counts()
        a.sync()
        b.catch_up(a)
        made = compare.lasting(a.cache)
        warm = b.run(JOBS).json
        yield {"a": a, "b": b, "cold": cold, "cold_seconds": cold_seconds, "compiled": compiled, "warm": warm, "made": made}


def test_first_node_compiles_everything(runs):
    """Else the other tests of this file say nothing."""
    assert runs["cold"]["counters"]["inductor.fxgraph_cache_miss"] == GRAPHS
    assert runs["cold"]["counters"]["aot_autograd.autograd_cache_miss"] == AUTOGRAD_ENTRIES
    assert runs["compiled"]["link"] > 20
    assert runs["compiled"]["header"] >= 1


def test_second_node_hits_every_graph(runs):
    counters = runs["warm"]["counters"]
    assert counters["inductor.fxgraph_cache_hit"] == GRAPHS
    assert counters["aot_autograd.autograd_cache_hit"] == AUTOGRAD_ENTRIES
    assert [name for name in counters if "miss" in name or "bypass" in name or "saved" in name] == []


def test_second_node_runs_no_compiler(runs):
    """Only queries of the version and one -E for each set of headers, which torch does on every start."""
    calls = runs["b"].compilers.calls()
    assert [call for call in calls if call[0] not in ("query", "preprocess")] == []
    headers = {call[1:] for call in runs["b"].compilers.calls() if call[0] == "preprocess"}
    assert len(headers) == runs["compiled"]["preprocess"]


def test_results_are_equal_to_the_bit(runs):
    assert runs["warm"]["results"] == runs["cold"]["results"]


def test_second_node_writes_nothing(runs):
    assert compare.lasting(runs["b"].cache) - runs["made"] == set()


def test_the_figures_of_both_nodes_are_true(runs):
    """What `inductorfs stats` says against what torch counted."""
    a, b = (json.loads(runs[name].cli("stats", runs[name].cache, "--json").out) for name in "ab")
    made, found = a["all"]["families"], b["all"]["families"]
    assert (made["fxgraph"]["missed"], made["fxgraph"]["made"]) == (GRAPHS, GRAPHS)
    assert (made["aotautograd"]["missed"], made["aotautograd"]["made"]) == (AUTOGRAD_ENTRIES, AUTOGRAD_ENTRIES)
    assert made["fxgraph"]["published"] == GRAPHS
    assert a["saved_s"] == 0
    assert found["fxgraph"]["cluster"] == GRAPHS
    assert b["all"]["missed"] == b["all"]["made"] == 0
    # torch's own sum for the cold run; each graph of it was saved.
    assert 0 < b["saved_s"] < runs["cold_seconds"]


def test_a_root_of_its_own_hits_as_the_mountpoint_does(runs):
    b = runs["b"]
    before = len(b.compilers.calls())
    own = b.run(JOBS, TORCHINDUCTOR_CACHE_DIR=b.cache / "team" / "job7").json
    assert (own["counters"], own["results"]) == (runs["warm"]["counters"], runs["cold"]["results"])
    assert [call for call in b.compilers.calls()[before:] if call[0] not in ("query", "preprocess")] == []

# SPDX-License-Identifier: Apache-2.0
"""Nodes with other numbers of CPUs: torch makes the C++ code of a graph for the number of threads that it starts with. The
key of torch 2.15 has that number. The key of 2.9 does not, so that the node with one CPU would slow the other."""
import contextlib
import os

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack

JOBS = (places.WORKLOADS / "cpu_jobs.py", "--jobs", "inference")


@contextlib.contextmanager
def on_cpus(cpus):
    """What is started meanwhile, the daemon and the jobs of a node, may use these CPUs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("version", ["2.15", "2.9"])
def test_a_node_with_one_cpu_gives_no_graph_to_one_with_more(version):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        lack("two CPUs")
    unset = {"OMP_NUM_THREADS": "", "MKL_NUM_THREADS": ""}
    with Cluster(torch=version, patient=True, environment=unset) as cluster:
        with on_cpus(cpus[:1]):
            small, same = cluster.node("small"), cluster.node("same")
            seed = small.run(*JOBS).json["counters"]
            assert seed["inductor.fxgraph_cache_miss"] >= 1
            small.sync()
            same.catch_up(small)
            again = same.run(*JOBS).json["counters"]
        assert again["inductor.fxgraph_cache_hit"] == seed["inductor.fxgraph_cache_miss"], "one of equal size hits"
        large = cluster.node("large")
        found = large.run(*JOBS).json["counters"]
        assert found.get("inductor.fxgraph_cache_miss") == seed["inductor.fxgraph_cache_miss"], found

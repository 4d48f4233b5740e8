# SPDX-License-Identifier: Apache-2.0
"""Redis is killed before, during and after a compile. The job's exit code and result do not change, and what was
written is in Redis after it is back and sync has returned: a second node then compiles nothing."""
import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.processes import wait_until

JOBS = places.WORKLOADS / "cpu_jobs.py"
HITS = {"aot_autograd.autograd_cache_hit": 1, "inductor.fxgraph_cache_hit": 1}


@pytest.fixture
def host():
    with Cluster(torch="2.15", patient=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def compiled():
    """Node a has compiled without a fault, for the tests that only need what it wrote."""
    with Cluster(torch="2.15", patient=True) as cluster:
        a = cluster.node("a")
        yield cluster, a, a.run(JOBS, "--jobs", "dynamic").json["results"]


@pytest.fixture
def expected(compiled):
    """The job's results without any fault."""
    return compiled[2]


def second_node_compiles_nothing(host, a, expected):
    """After Redis is back."""
    a.sync(90)
    b = host.node("b")
    out = b.run(JOBS, "--jobs", "dynamic").json
    assert out["results"] == expected
    assert out["counters"] == HITS
    if {"compile", "link", "header"} & set(b.compilers.counts()):
        lookups = {name: value for name, value in b.counters().items() if name.startswith(("fetch.", "lookup.")) and value}
        pytest.fail(f"{b.compilers.calls()}\n{lookups}{b.log_tail()}")


def test_killed_before_the_mount(host, expected):
    host.redis.kill()
    a = host.node("a")
    out = a.run(JOBS, "--jobs", "dynamic").json
    assert out["results"] == expected
    host.redis.start()
    second_node_compiles_nothing(host, a, expected)


def test_killed_during_the_compile(host, expected):
    a = host.node("a")
    job = a.begin(JOBS, "--jobs", "dynamic")
    wait_until(lambda: a.compilers.counts().get("link", 0) >= 3, 120, "some compiled files", pause=0.1)
    assert job.running
    host.redis.kill()
    assert job.wait().json["results"] == expected
    host.redis.start()
    second_node_compiles_nothing(host, a, expected)


def test_killed_after_the_compile(compiled, expected):
    host, a, _ = compiled
    host.redis.kill()
    host.redis.start()
    second_node_compiles_nothing(host, a, expected)


def test_hung_while_a_second_node_reads(compiled, expected):
    """Nothing answers and nothing breaks: the reads are misses after their deadline."""
    host, a, _ = compiled
    a.sync(90)
    b = host.node("hung", options=["--lookup-patience", 250])
    host.redis.suspend()
    try:
        assert b.run(JOBS, "--jobs", "dynamic").json["results"] == expected
    finally:
        host.redis.resume()
    b.sync(90)

# SPDX-License-Identifier: Apache-2.0
"""Programs that switch the caches off, use a fresh one, delete the directory, or carry artifacts by hand."""
import errno

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster

JOBS = places.WORKLOADS / "cpu_jobs.py"
API = places.WORKLOADS / "cache_api.py"


@pytest.fixture(scope="module")
def host():
    """Node a has compiled and published one small job; node b is mounted. Without precompiled headers, which other tests
    have: this file compiles five times from nothing."""
    with Cluster(torch="2.15", environment={"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}, patient=True) as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        cold = a.run(JOBS, "--jobs", "dynamic").json
        a.sync()
        b.catch_up(a)
        yield {"cluster": cluster, "a": a, "b": b, "cold": cold, "names": compare.shared_names(a.cache)}


@pytest.fixture(scope="module")
def artifacts(host):
    """(the file with what torch saved on node a, how many of each kind)"""
    file = host["cluster"].directory / "artifacts"
    return file, host["a"].run(JOBS, "--jobs", "dynamic", "--save", file).json["saved"]


def test_disabled_caches_are_left_alone(host):
    out = host["b"].run(JOBS, "--jobs", "dynamic", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1").json
    host["b"].sync()
    assert out["results"] == host["cold"]["results"]
    assert not [name for name in out["counters"] if name.endswith("_hit")]
    assert compare.shared_names(host["a"].cache) == host["names"]


def test_fresh_cache_within_the_mount_is_private_and_goes_away(host):
    out = host["b"].run(API, "fresh").json
    host["b"].sync()
    assert out["result"] == host["cold"]["results"]["dynamic"]
    assert out["inside"] > 5
    assert out["left"] == []
    assert compare.shared_names(host["a"].cache) == host["names"]


def test_the_shared_cache_still_hits_after_both(host):
    host["b"].compilers.clear()
    out = host["b"].run(JOBS, "--jobs", "dynamic").json
    assert out["counters"] == {"aot_autograd.autograd_cache_hit": 1, "inductor.fxgraph_cache_hit": 1}
    assert not {"compile", "link", "header"} & set(host["b"].compilers.counts())


def test_saved_artifacts_load_on_a_mount_without_a_cluster(host, artifacts):
    file, saved = artifacts
    assert saved["inductor"] == 1
    c = host["cluster"].node("c", remote=None)
    # Without an exchange a directory-backed node would have got the files of a already.
    fresh = c.backing == "mount"
    out = c.run(JOBS, "--jobs", "dynamic", "--load", file).json
    assert out["loaded"] == saved
    assert out["counters"].get("inductor.fxgraph_cache_hit") == 1
    assert out["results"] == host["cold"]["results"]
    assert not fresh or {name for name in compare.shared_names(c.cache) if name.startswith("fxgraph/")} == {
        name for name in host["names"] if name.startswith("fxgraph/")}


def test_loaded_artifacts_are_published(host, artifacts):
    """torch's Mega-Cache fills a cluster: what one process loads on a mount, another node of that cluster hits."""
    file, saved = artifacts
    empty = ("--prefix", "another-cluster")
    e, f = (host["cluster"].node(name, options=empty) for name in ("e", "f"))
    loaded = e.run(JOBS, "--jobs", "dynamic", "--load", file).json
    assert loaded["loaded"] == saved and loaded["counters"].get("inductor.fxgraph_cache_hit") == 1
    assert e.compilers.counts().get("link"), "torch saves no binaries"
    e.sync()
    f.catch_up(e)
    out = f.run(JOBS, "--jobs", "dynamic").json
    assert out["counters"] == {"aot_autograd.autograd_cache_hit": 1, "inductor.fxgraph_cache_hit": 1}
    assert not {"compile", "link"} & set(f.compilers.counts())
    assert out["results"] == host["cold"]["results"]
    graphs = {name for name in compare.shared_names(f.cache) if name.startswith("fxgraph/")}
    assert graphs == {name for name in host["names"] if name.startswith("fxgraph/")} != set()


def test_rmtree_empties_this_node_and_no_other(host):
    """The last test of this file: it empties node b."""
    a, b = host["a"], host["b"]
    out = b.run(API, "rmtree").json
    assert out["left"] == []
    if b.backing == "mount":
        assert out["errors"] == [["rmdir", ".", errno.EBUSY]]  # a mountpoint itself cannot be removed
    else:
        b.cache.mkdir(exist_ok=True)
    assert compare.shared_names(a.cache) == host["names"]

    again = b.run(JOBS, "--jobs", "dynamic").json
    assert again["results"] == host["cold"]["results"]
    assert again["counters"]["inductor.fxgraph_cache_miss"] == 1
    assert a.run(JOBS, "--jobs", "dynamic").json["counters"]["inductor.fxgraph_cache_hit"] == 1

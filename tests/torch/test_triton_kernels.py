# SPDX-License-Identifier: Apache-2.0
"""Triton kernels for three architectures. With the newer Triton on mounts that were told of nothing, in the directory that `inductorfs env` names;
with the older one the environment is declared, and what was written as triton/0 is read as triton/3."""
from pathlib import Path

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.toolchain import CountingPtxas, PtxasCalls

KERNELS = places.WORKLOADS / "triton_kernels.py"
STAGES = ("make_ir", "ttir", "ttgir", "llir", "ptx", "cubin")
COMPILES = 14 * 3


def as_documented(a, b, _):
    return PtxasCalls(a.root / "ptxas.log"), PtxasCalls(b.root / "ptxas.log"), *(Path(node.variables()["TRITON_CACHE_DIR"]) for node in (a, b))


def as_declared(a, b, version):
    tools = places.site_packages(version) / "triton" / "backends" / "nvidia" / "bin"
    return (CountingPtxas(a.root / "ptxas", a.root / "ptxas.log", tools, works=True),
            CountingPtxas(b.root / "ptxas", b.root / "ptxas.log", tools, works=False), a.cache / "triton" / "0", b.cache / "triton" / "3")


@pytest.fixture(scope="module", params=["2.15", "2.9"])
def runs(request):
    declared = request.param == "2.9"
    with Cluster(torch=request.param, patient=True, declared=declared) as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        real, refusing, first, second = (as_declared if declared else as_documented)(a, b, request.param)
        cold = a.run(KERNELS, TRITON_CACHE_DIR=first, **real.env).json
        a.sync()
        b.catch_up(a)
        warm = b.run(KERNELS, TRITON_CACHE_DIR=second, **refusing.env).json
        yield {"a": a, "b": b, "cold": cold, "warm": warm, "real": real, "refusing": refusing, "first": first, "second": second}


def test_first_node_runs_every_stage(runs):
    assert runs["cold"]["stages"] == {stage: COMPILES for stage in STAGES}
    assert len(runs["real"].calls()) == COMPILES


def test_second_node_runs_no_stage(runs):
    assert runs["warm"]["stages"] == {}
    assert runs["refusing"].calls() == []


def test_keys_and_binaries_are_the_same(runs):
    assert runs["warm"]["keys"] == runs["cold"]["keys"]
    assert runs["warm"]["cubins"] == runs["cold"]["cubins"]


def test_second_node_leaves_no_trace(runs):
    """Every lookup makes the key directory (EEXIST), nothing else."""
    if runs["b"].backing == "mount":
        assert compare.shared_names(runs["b"].cache) == compare.shared_names(runs["a"].cache)


def test_group_names_this_mounts_own_paths(runs):
    groups = [name for name in compare.names(runs["second"]) if "__grp__" in name]
    assert len(groups) == COMPILES
    for name in groups[:5]:
        text = (runs["second"] / name).read_text()
        assert str(runs["second"]) in text
        assert str(runs["a"].cache) not in text


def test_a_directory_of_its_own_hits_too(runs):
    """A plain TRITON_CACHE_DIR, as vLLM sets one for each rank."""
    b = runs["b"]
    own = b.run(KERNELS, TRITON_CACHE_DIR=b.cache / "torch_compile_cache" / "0123456789" / "rank_0_0" / "triton_cache",
                **runs["refusing"].env).json
    assert own["stages"] == {}
    assert runs["refusing"].calls() == []
    assert (own["keys"], own["cubins"]) == (runs["cold"]["keys"], runs["cold"]["cubins"])

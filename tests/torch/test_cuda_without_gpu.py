# SPDX-License-Identifier: Apache-2.0
"""Inductor's CUDA path, whole and unmodified, on a host without a GPU: a stand-in libcuda.so.1 makes torch see an
H100, kernels are compiled for real and launched as no-ops. And the two families of tunings that several nodes write. The mounts were told of
nothing, and the jobs have the variables that `inductorfs env` prints."""
import json
from collections import Counter

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster, lack, stand_in_gpu
from inductorfs_testing.mounts import published
from inductorfs_testing.processes import wait_until
from inductorfs_testing.toolchain import PtxasCalls

TUNINGS = places.WORKLOADS / "autotune_cache.py"
WORK = "train,dynamic,tune,raw"
VERSION = "2.15"


@pytest.fixture(scope="module")
def host():
    """Two nodes whose daemons and jobs see the stand-in. Its path is in Triton's key of cuda_utils: one for both."""
    with Cluster(torch=VERSION, patient=True) as cluster:
        library = cluster.directory / "cuda"
        headers = stand_in_gpu(VERSION, library)
        a, b = (cluster.node(name, environment={"LD_LIBRARY_PATH": str(library)}) for name in "ab")
        yield {"cluster": cluster, "library": library, "headers": headers, "a": a, "b": b}


def job(host, node, launches):
    ptxas = PtxasCalls(node.root / f"ptxas-{launches}.log")
    out = node.run(places.STAND_IN, "--lib", host["library"], "--cuda-include", host["headers"], "--work", WORK,
                   FAKE_CUDA_LOG=node.root / launches, **ptxas.env).json
    lines = (node.root / launches).read_text().splitlines()
    return {"out": out, "counters": out["counters"], "ptxas": ptxas.calls(),
            "launches": Counter(line for line in lines if line.startswith("launch"))}


@pytest.fixture(scope="module")
def runs(host):
    a, b = host["a"], host["b"]
    cold = job(host, a, "cold")
    before = compare.lasting(a.cache)
    local = job(host, a, "local")
    written = compare.lasting(a.cache) - before
    a.sync()
    b.catch_up(a)
    b.compilers.clear()
    fresh = job(host, b, "fresh")
    return {"cold": cold, "local": local, "fresh": fresh, "written_locally": written, "families": families_of(b),
            "written": compare.lasting(b.cache) - before,
            "compilers": b.compilers.counts()}


def families_of(node):
    """{family: what `inductorfs stats` says of it}"""
    return json.loads(node.cli("stats", node.cache, "--json").out)["all"]["families"]


def test_first_node_makes_every_family(runs):
    files = runs["cold"]["out"]["files"]
    assert (files["fxgraph entry"][0], files["aotautograd entry"][0], files["generated py"][0]) == (4, 3, 39)
    assert (files["best_config"][0], files["system autotune"][0], files["triton autotune json"][0]) == (3, 1, 1)
    assert files["triton cubin"][0] >= 40
    assert files["triton cuda_utils/launcher .so"][0] == 1
    assert runs["cold"]["counters"]["inductor.coordesc_tuning_bench"] > 0


def test_second_node_hits_every_graph(runs):
    counters = runs["fresh"]["counters"]
    assert counters["inductor.fxgraph_cache_hit"] == 4
    assert counters["aot_autograd.autograd_cache_hit"] == 3
    assert not [name for name in counters if name.endswith(("fxgraph_cache_miss", "autograd_cache_miss", "bypass"))]


def test_second_node_compiles_no_kernel(runs):
    assert len(runs["cold"]["ptxas"]) >= 40
    assert runs["fresh"]["ptxas"] == []
    assert not {"compile", "link", "header"} & set(runs["compilers"])


def test_second_node_measures_no_config(runs):
    assert "inductor.coordesc_tuning_bench" not in runs["fresh"]["counters"]
    assert runs["fresh"]["counters"] == runs["local"]["counters"]


def test_second_node_launches_what_a_warm_local_start_launches(runs):
    assert runs["fresh"]["launches"] == runs["local"]["launches"]


def test_second_node_writes_what_a_warm_local_start_writes(runs):
    assert runs["written"] == runs["written_locally"]


def test_kernels_lie_where_the_variables_lead_and_come_from_the_cluster(host, runs):
    assert host["a"].variables()["TRITON_CACHE_DIR"] == str(host["a"].cache / "triton_cache")
    assert [name for name in compare.names(host["b"].cache / "triton_cache") if name.endswith(".cubin")]
    kernels = runs["families"]["triton_kernel"]
    assert kernels["cluster"] > 0 and (kernels["missed"], kernels["made"]) == (0, 0), runs["families"]


@pytest.mark.parametrize("form", ["new", "old"])
def test_best_config_crosses_through_torchs_own_cache(host, form):
    a, b = host["a"], host["b"]
    saved = a.run(TUNINGS, "best-config", "--form", form, "--save").json
    assert saved["config"] == {"BLOCK": 128, "num_warps": 4}
    if form == "old" and a.backing == "mount":
        # Written in place: sealed when it has been quiet for some time, which sync does not cut short.
        wait_until(lambda: any(saved["name"] == name for name in compare.names(a.cache)), 5, "the file")

    def crossed():
        a.sync()
        return b.backing == "directory" or any(path.endswith(saved["name"]) for path in published(host["cluster"]))

    wait_until(crossed, 30, f"{saved['name']} in the cluster", pause=0.5)
    b.catch_up(a)
    assert b.run(TUNINGS, "best-config", "--form", form).json == saved


def test_timings_of_both_nodes_survive_writing_at_once(host):
    a, b = host["a"], host["b"]
    if a.backing == "directory":
        lack("plain directories merge nothing")
    entries = 12
    preload = host["library"] / "libcuda.so.1"
    jobs = [node.begin(TUNINGS, "system", "--writer", node.name, "--entries", entries, LD_PRELOAD=preload,
                       TRITON_LIBCUDA_PATH=host["library"]) for node in (a, b)]
    outs = [started.wait(300).json for started in jobs]
    name = outs[0]["file"].rsplit("/", 1)[1]
    assert outs[1]["file"].rsplit("/", 1)[1] == name
    wanted = {f"op{number}/inputs-of-{node.name}/choice-of-{node.name}" for node in (a, b) for number in range(entries)}
    for node in (a, b):
        node.sync()
    fresh = host["cluster"].node("c", environment={"LD_LIBRARY_PATH": str(host["library"])})

    # A node is shown what a job of it asks for: one that adds a timing of its own.
    for node in (fresh, a, b):
        node.run(TUNINGS, "system", "--writer", f"{node.name}-again", "--entries", 1, LD_PRELOAD=preload, TRITON_LIBCUDA_PATH=host["library"])

    def timings(node):
        tree = json.loads((node.cache / "cache" / name).read_text())["cache"]
        return {f"{op}/{inputs}/{choice}" for op, by_inputs in tree.items() for inputs, by_precision in by_inputs.items()
                for by_choice in by_precision.values() for choice in by_choice}

    for node in (fresh, a, b):
        wait_until(lambda: wanted <= timings(node), 20, f"all timings on node {node.name}", pause=0.2)

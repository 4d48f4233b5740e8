# SPDX-License-Identifier: Apache-2.0
"""Eight processes on each of two nodes compile the same eight kernels at once, round after round (INDUCTORFS_STORM_ROUNDS).
No error, no mixed set.

On a plain local directory the same storm has no error either, but in 4 of 5 loads CompiledKernel gets files of different
writers (each put replaces what another process has put): Triton's own protocol does not promise one writer, the mount does."""
import os

import pytest
from inductorfs_testing import places, triton_sets
from inductorfs_testing.fixtures import Cluster, lack

ROUNDS, PROCESSES, KERNELS = int(os.environ.get("INDUCTORFS_STORM_ROUNDS", 6)), 8, 8


def compiled_on(nodes, scratch, processes):
    """What storm.py printed."""
    return nodes[0].run(places.WORKLOADS / "storm.py", *(f"--node={node.name}={node.variables()['TRITON_CACHE_DIR']}" for node in nodes),
                        "--processes", processes, "--rounds", ROUNDS, "--scratch", scratch, seconds=900).json


@pytest.fixture(scope="module")
def storm():
    with Cluster(torch="2.15", patient=True) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        out = compiled_on(nodes, cluster.directory / "scratch", PROCESSES)
        for node in nodes:
            node.sync(120)
        yield {"cluster": cluster, "nodes": nodes, "out": out}


def mixed_directories(node):
    assert len(triton_sets.groups(node.cache)) == ROUNDS * KERNELS
    return triton_sets.mixed_directories(node.cache)


def test_no_process_fails(storm):
    assert storm["out"]["errors"] == []


def test_every_process_computes_the_same_keys(storm):
    assert {len(keys) for keys in storm["out"]["keys"].values()} == {KERNELS}
    assert len(set().union(*storm["out"]["keys"].values())) == ROUNDS * KERNELS


def test_no_process_loads_a_mixed_set(storm):
    if storm["nodes"][0].backing == "directory":
        lack("plain directories do mix")
    assert storm["out"]["mixed"] == []


def test_every_key_directory_has_one_writer_on_both_nodes(storm):
    if storm["nodes"][0].backing == "directory":
        lack("plain directories do mix")
    for node in storm["nodes"]:
        assert mixed_directories(node) == {}


def test_a_node_that_comes_later_sees_one_writer_for_each_key(storm):
    """What the cluster holds, on a node that took no part: its first job compiles nothing, and a program without torch is shown what it has found."""
    if storm["nodes"][0].backing == "directory":
        lack("plain directories do mix")
    node = storm["cluster"].node("c")
    out = compiled_on([node], storm["cluster"].directory / "later", 1)
    assert (out["errors"], out["mixed"], out["compiles"], out["keys"]) == ([], [], 0, storm["out"]["keys"])
    assert set(out["writers"]) <= set(storm["out"]["writers"])
    assert mixed_directories(node) == {}

# SPDX-License-Identifier: Apache-2.0
"""Jobs of several environments in one cache root of mounts that were told of none: each hits what its own
environment compiled on another node, and is shown nothing of the others'."""
import os
import subprocess

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster

JOB = places.WORKLOADS / "one_kernel.py"
# Two of torch, and one of them with a variable that is in none of torch's keys.
# Without precompiled headers, which test_cpu_jobs.py has with both torches: one for each of these would be 10 s and 150 MB.
NO_HEADERS = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
ENVIRONMENTS = {"2.15": ("2.15", {}), "2.9": ("2.9", {}), "2.15 with avx2": ("2.15", {"ATEN_CPU_CAPABILITY": "avx2"})}


def run(node, root, environment):
    torch, variables = ENVIRONMENTS[environment]
    node.python = places.venv_python(torch)
    told = node.run(JOB, TORCHINDUCTOR_CACHE_DIR=node.cache / root, **variables).json
    counters = told["counters"]
    return {"hits": counters.get("inductor.fxgraph_cache_hit", 0), "misses": counters.get("inductor.fxgraph_cache_miss", 0),
            "digest": told["digest"]}


@pytest.fixture(scope="module")
def runs():
    """On the first node each environment compiles, one after the other in one root; on the second one each of them comes once more."""
    with Cluster(torch="2.15", environment=NO_HEADERS, patient=True) as cluster:
        a, b = (cluster.node(name) for name in ("a", "b"))
        told = {}
        for node in (a, b):
            (node.cache / "team").mkdir()
        for environment in ENVIRONMENTS:
            told["a", environment] = run(a, "team", environment)
        a.sync()
        for environment in ENVIRONMENTS:
            told["b", environment] = run(b, "team", environment)
        for environment in ENVIRONMENTS:
            told["again", environment] = run(b, "team", environment)
        yield {"a": a, "b": b, **told}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_compiles_for_itself_once(runs, environment):
    cold = runs["a", environment]
    assert (cold["hits"], cold["misses"]) == (0, 1), cold


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_hits_its_own_on_the_other_node(runs, environment):
    warm = runs["b", environment]
    assert (warm["hits"], warm["misses"]) == (1, 0), (warm, runs["a"].status()["roots"] if "roots" in runs["a"].status() else "")
    assert warm["digest"] == runs["a", environment]["digest"]


def test_each_hits_again_while_the_others_lie_there(runs):
    for environment in ENVIRONMENTS:
        assert (runs["again", environment]["hits"], runs["again", environment]["misses"]) == (1, 0), environment


def test_the_status_names_them(runs):
    roots = runs["b"].status()["file_system"]["first_roots"]
    texts = sorted(root["environment"] for root in roots if root["path"] == "team" and "environment" in root)
    assert [text for text in texts if text.startswith("torch 2.15")] and [text for text in texts if text.startswith("torch 2.9")], roots


def test_a_program_without_torch_sees_one_directory(runs):
    names = os.listdir(runs["b"].cache / "team")
    assert "fxgraph" in names and not [name for name in names if name.startswith(".inductorfs")], names
    done = subprocess.run(["rm", "-rf", str(runs["a"].cache / "team")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (runs["a"].cache / "team").exists()
    (runs["a"].cache / "team").mkdir()
    assert run(runs["a"], "team", "2.15")["hits"] == 1, "from the cluster"

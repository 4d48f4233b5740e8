# SPDX-License-Identifier: Apache-2.0
"""A real CUDA device: the facts that the driver tells, torch's own hash, and a compile on two mounts."""
import json
import os
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, need
from inductorfs_testing.processes import run

JOBS = Path(__file__).with_name("gpu_jobs.py")
AGAINST_TORCH = places.REPOSITORY / "tests" / "fingerprint" / "against_torch.py"


@pytest.fixture(scope="module")
def fingerprint():
    need()
    done = run([places.program(), "fingerprint", "--json", "--python", places.venv_python("2.15")], dict(os.environ),
               seconds=120)
    assert done.code == 0, done.err
    if json.loads(done.out)["facets"]["gpu"].get("value", "none") == "none":
        pytest.skip("no CUDA device answers on this host")
    return done.out


def test_the_facts_are_those_that_torch_sees(fingerprint, tmp_path):
    facts = tmp_path / "fingerprint.json"
    facts.write_text(fingerprint)
    done = run([places.venv_python("2.15"), AGAINST_TORCH, facts], dict(os.environ), seconds=300)
    assert done.code == 0, done.out + done.err


def test_the_second_node_compiles_and_tunes_nothing(fingerprint):
    with Cluster(torch="2.15") as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        cold = a.run(JOBS).json
        a.sync()
        b.catch_up(a)
        warm = b.run(JOBS).json
        assert cold["counters"].get("inductor.fxgraph_cache_miss", 0) > 0
        assert [name for name in warm["counters"] if "miss" in name] == []
        assert warm["counters"]["inductor.fxgraph_cache_hit"] == cold["counters"]["inductor.fxgraph_cache_miss"]
        assert warm["results"] == cold["results"]
        print(f"{cold['device']}: cold {cold['compile_seconds']} s, second node {warm['compile_seconds']} s")

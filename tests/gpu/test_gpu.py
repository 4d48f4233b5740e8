# SPDX-License-Identifier: Apache-2.0
"""A real CUDA device: the facts that the driver tells, the probe's kernel on it, torch's own hash, and a compile with tuning
on two mounts."""
import json
import os
import shutil
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, need
from inductorfs_testing.processes import run

JOBS = Path(__file__).with_name("gpu_jobs.py")
AGAINST_TORCH = places.REPOSITORY / "tests" / "fingerprint" / "against_torch.py"


def learn(**environment):
    done = run([places.program(), "fingerprint", "--json", "--python", places.venv_python("2.15")],
               {**os.environ, **environment}, seconds=120)
    assert done.code == 0, done.err
    return done.out


def facets_of(text):
    return json.loads(text)["facets"]


def lines_of(text):
    return dict(line.partition("=")[::2] for line in text.splitlines())


def memory_in_use():
    """MiB by device, as the driver counts them outside any context of ours; None where nvidia-smi is absent."""
    if not shutil.which("nvidia-smi"):
        return None
    done = run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], dict(os.environ), seconds=60)
    return [int(line) for line in done.out.split()] if done.code == 0 else None


@pytest.fixture(scope="module")
def fingerprint():
    """Skips where nothing answers; a device that answers and does not run code is a failure, not a reason to skip."""
    need()
    text = learn()
    if facets_of(text)["gpu"].get("value") == "none":
        pytest.skip("NO TEST OF A REAL DEVICE RAN: no CUDA device answers on this host")
    assert facets_of(text)["gpu"]["known"], facets_of(text)["gpu"]
    return text


def test_every_device_ran_the_probes_kernel_and_got_its_memory_back(fingerprint):
    details = lines_of(facets_of(fingerprint)["gpu"]["details"])
    devices = [name.partition(".")[0] for name in details if name.endswith(".runs_code")]
    assert devices
    for device in devices:
        assert details[f"{device}.runs_code"] == "yes", details
        assert details[f"{device}.kernel_image"] == "cubin", details
        kept = int(details[f"{device}.memory_free_before"]) - int(details[f"{device}.memory_free_after"])
        assert kept < 64 << 20, "what the context takes for its first launch goes with the context, the rest is given back"
        assert 0 < int(details[f"{device}.kernel_microseconds"]) < 1_000_000
    if Path("/proc/driver/nvidia/version").exists():
        assert details["driver_release"]


def test_no_context_stays_on_the_device(fingerprint):
    before = memory_in_use()
    if before is None:
        pytest.skip("nvidia-smi does not answer: the memory outside a context was not looked at")
    learn()
    after = memory_in_use()
    assert all(abs(one - other) < 64 for one, other in zip(before, after)), (before, after)
    with Cluster(torch="2.15") as cluster:
        node = cluster.node("a")
        mounted = memory_in_use()
        assert all(abs(one - other) < 64 for one, other in zip(before, mounted)), (before, mounted)
        done = run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], dict(os.environ), seconds=60)
        assert not set(done.out.split()) & {str(pid) for pid in node.daemons()}, "the daemon holds a CUDA context"


def test_the_visible_devices_are_the_facts(fingerprint):
    assert facets_of(learn(CUDA_VISIBLE_DEVICES=""))["gpu"]["value"] == "none"
    every = facets_of(fingerprint)["gpu"]["value"]
    count = sum(name.endswith(".runs_code") for name in lines_of(facets_of(fingerprint)["gpu"]["details"]))
    turned = ",".join(str(index) for index in reversed(range(count)))
    assert facets_of(learn(CUDA_VISIBLE_DEVICES=turned))["gpu"]["value"] == every


def test_the_facts_are_those_that_torch_sees(fingerprint, tmp_path):
    """Name, capability, SM count, memory, limits, UUID; and torch's own system hash on this machine against ours."""
    facts = tmp_path / "fingerprint.json"
    facts.write_text(fingerprint)
    done = run([places.venv_python("2.15"), AGAINST_TORCH, facts], dict(os.environ), seconds=300)
    assert done.code == 0, done.out + done.err


@pytest.mark.usefixtures("fingerprint")  # only where a device answers
def test_the_second_node_compiles_and_tunes_nothing():
    with Cluster(torch="2.15") as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        cold = a.run(JOBS).json
        a.sync()
        b.catch_up(a)
        warm = b.run(JOBS).json
        assert cold["counters"].get("inductor.fxgraph_cache_miss", 0) > 0
        # The misses of memory that each process starts without (async_compile, generated_module) are no misses here.
        assert [name for name in warm["counters"] if name.endswith(("fxgraph_cache_miss", "autograd_cache_miss"))] == []
        assert warm["counters"]["inductor.fxgraph_cache_hit"] == cold["counters"]["inductor.fxgraph_cache_miss"]
        assert warm["results"] == cold["results"]
        assert not any("coordesc" in name for name in warm["counters"]), warm["counters"]
        # Torch's timings lie under its own hash of this machine, the same on both nodes; beside it are the directories of its on-disk cache,
        # which the mount shows in torch's default directory too.
        timings = [set(os.listdir(node.cache / "cache")) - {"should_pad", "inductor_on_disk_cache"} for node in (a, b)]
        assert timings[0] == timings[1] and [len(name) for name in timings[0]] == [64], timings
        print(f"{cold['device']}: cold {cold['compile_seconds']} s, second node {warm['compile_seconds']} s")

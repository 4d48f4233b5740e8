# SPDX-License-Identifier: Apache-2.0
"""Why real jobs compiled: `why-miss` is asked when each has ended, and has saved and published what it had missed."""
import json
import os
import shutil
import subprocess

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.processes import wait_until
from inductorfs_testing.users_jobs import begin

ALICE, BOB = 54321, 54322  # without a name on any host
JOBS = places.WORKLOADS / "cpu_jobs.py"


@pytest.fixture(scope="module")
def nodes():
    if os.geteuid() != 0:
        lack("jobs of several users: root only")
    with Cluster(torch="2.15", environment={"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}, patient=True) as cluster:
        cluster.directory.chmod(0o755)
        made = []
        for name in "ab":
            node = cluster.node(name, start=False)
            node.root.chmod(0o755)
            node.cache.chmod(0o1777)
            shutil.copytree(places.WORKLOADS, node.root / "workloads")
            (node.root / "held").mkdir()
            made.append(node.start())
        yield made


def verdict(node, user, **environment):
    """Runs the job of this user in his directory; the reasons of what it compiled by family, and the first line for people."""
    root = node.cache / f"user{user}"
    if not root.exists():
        root.mkdir()
        os.chown(root, user, user)
    before = {job["number"] for job in jobs(node)}
    done = begin(node, user, "022", JOBS, "--jobs", "inference", TORCHINDUCTOR_CACHE_DIR=root, **environment).wait().json
    node.sync()
    (job,) = [job for job in jobs(node) if job["number"] not in before and job["asked"]]
    words = (node.cache, "--job", str(job["number"]))
    report = json.loads(node.cli("why-miss", *words, "--json").out)
    graphs = {one["reason"] for one in report["reasons"] if {"fxgraph", "aotautograd"} & set(one["families"])}
    return done["counters"].get("inductor.fxgraph_cache_miss", 0), graphs, node.cli("why-miss", *words).out.splitlines()[0]


def jobs(node):
    return json.loads(node.cli("jobs", node.cache, "--json").out)["jobs"]


def test_the_reason_is_that_of_the_moment(nodes):
    a, b = nodes
    missed, graphs, line = verdict(a, ALICE)
    assert missed and graphs == {"first"} and "because nobody in this cluster had compiled it" in line, line

    missed, graphs, line = verdict(a, BOB)
    assert missed and graphs == {"facts"} and f"trust: here user=#{BOB}, there user=#{ALICE}" in line, line

    missed, graphs, line = verdict(a, ALICE, TRITON_DEFAULT_FP_FUSION="0")
    assert missed and graphs == {"facts"} and "environment: here TRITON_DEFAULT_FP_FUSION=0, there none" in line, line

    b.catch_up(a)
    assert a.cli("freeze", "--why", "a test", a.cache).code == 0
    wait_until(lambda: b.status()["cluster"]["frozen"], 60, "the freeze to be obeyed")
    missed, graphs, line = frozen(b)
    assert missed and graphs == {"frozen"} and "because an operator has frozen the cluster" in line, line
    assert a.cli("freeze", "--lift", a.cache).code == 0
    wait_until(lambda: not b.status()["cluster"]["frozen"], 60, "the freeze to be lifted")

    assert verdict(a, ALICE)[0] == 0, "what she made is still here"
    subprocess.run(f"rm -rf {a.cache}/user{ALICE}/*", shell=True, check=True)
    missed, graphs, line = verdict(a, ALICE)
    assert missed and graphs == {"deleted"} and "because a program has deleted it here" in line, line

    for family in ("fxgraph", "aotautograd"):
        assert a.cli("purge", "--family", family, "--yes", a.cache).code == 0
    missed, graphs, line = verdict(a, ALICE)
    assert missed and graphs == {"purged"} and "because nobody has made it since an operator purged such artefacts" in line, line


def frozen(node):
    """No sync: nothing is published meanwhile."""
    root = node.cache / f"user{ALICE}"
    root.mkdir()
    os.chown(root, ALICE, ALICE)
    done = begin(node, ALICE, "022", JOBS, "--jobs", "inference", TORCHINDUCTOR_CACHE_DIR=root).wait().json
    report = json.loads(node.cli("why-miss", node.cache, "--json").out)
    graphs = {one["reason"] for one in report["reasons"] if {"fxgraph", "aotautograd"} & set(one["families"])}
    return done["counters"].get("inductor.fxgraph_cache_miss", 0), graphs, node.cli("why-miss", node.cache).out.splitlines()[0]

# SPDX-License-Identifier: Apache-2.0
"""Two users whose torch jobs share one directory of one mount: neither fails, and each hits what the other compiled."""
import os
import shutil

import pytest
from inductorfs_testing import documented, places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.users_jobs import begin

ONE, TWO = 1000, 1001
JOBS = places.WORKLOADS / "cpu_jobs.py"
PGO = places.WORKLOADS / "pgo.py"
@pytest.fixture(scope="module")
def node():
    if os.geteuid() != 0:
        lack("jobs of several users: root only")
    with Cluster(torch="2.15", patient=True) as cluster:
        cluster.directory.chmod(0o755)
        made = cluster.node("a", start=False)
        made.root.chmod(0o755)
        made.cache.chmod(0o1777)
        shutil.copytree(places.WORKLOADS, made.root / "workloads")
        (made.root / "held").mkdir()
        made.start()
        team = made.cache / "team"
        team.mkdir()
        team.chmod(0o1777)
        made._variables = documented.variables(made.cache, made.plain_env(), words=" --root team")
        yield made


def test_each_hits_what_the_other_compiled(node):
    for name, first, second, umask in (("inference", ONE, TWO, "077"), ("dynamic", TWO, ONE, "022")):
        cold = begin(node, first, umask, JOBS, "--jobs", name).wait().json
        warm = begin(node, second, "077", JOBS, "--jobs", name).wait().json
        assert cold["counters"]["inductor.fxgraph_cache_miss"] >= 1
        assert warm["counters"]["inductor.fxgraph_cache_hit"] == cold["counters"]["inductor.fxgraph_cache_miss"], name
        assert not [counter for counter in warm["counters"] if "miss" in counter], name
        assert warm["results"] == cold["results"]


def test_both_compile_the_same_at_once(node):
    jobs = [begin(node, user, "077", JOBS, "--jobs", "train") for user in (ONE, TWO)]
    one, two = (job.wait().json for job in jobs)
    assert one["results"] == two["results"]
    owners = {os.stat(os.path.join(above, name)).st_uid for above, _, names in os.walk(node.cache) for name in names}
    assert {ONE, TWO} <= owners, "each has made some of the files"


def test_runs_of_one_named_job_hand_on_what_they_learned(node):
    job = {"TORCH_COMPILE_JOB_ID": "train"}
    assert begin(node, ONE, "077", PGO, "4,3", "5,3", **job).wait().json["compiled"] == 2
    assert begin(node, TWO, "077", PGO, "6,3", "7,3", **job).wait().json["compiled"] == 1
    assert begin(node, TWO, "077", PGO, "4,3", "4,5", **job).wait().json["compiled"] == 2
    assert begin(node, ONE, "022", PGO, "4,6", "4,7", **job).wait().json["compiled"] == 1

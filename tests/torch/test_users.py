# SPDX-License-Identifier: Apache-2.0
"""Two users whose torch jobs share one directory of one mount: neither fails, and each hits what the other compiled."""
import os
import shutil
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.processes import Job

ONE, TWO = 1000, 1001
JOBS = places.WORKLOADS / "cpu_jobs.py"
PGO = places.WORKLOADS / "pgo.py"
# What lies below a directory that is root's alone is shown to the job in a mount namespace of its own, at the same paths.
AS_USER = """
closed=$1 held=$2 mask=$3; shift 3
if [ "$closed" ]; then
  mount --rbind "$closed" "$held"
  mount -t tmpfs -o mode=755 tmpfs "$closed"
  for directory in "$held"/* "$held"/.[!.]*; do
    [ -d "$directory" ] || continue
    mkdir "$closed/${directory##*/}"
    mount --rbind "$directory" "$closed/${directory##*/}"
  done
fi
umask "$mask"
exec setpriv --clear-groups "$@"
"""


def closed_above(*paths):
    """The highest directory above one of them into which only its owner may go; empty where there is none."""
    above = {parent for path in paths for parent in Path(path).parents if not parent.stat().st_mode & 0o001}
    return min(above, key=lambda path: len(path.parts), default="")


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
        yield made.start()


def begin(node, user, umask, workload, *words, **environment):
    """A job of that user, with a home and a TMPDIR of its own."""
    own = node.root / f"user{user}"
    if not own.exists():
        own.mkdir()
        os.chown(own, user, user)
    command = ["unshare", "-m", "sh", "-ec", AS_USER, "sh", closed_above(node.python, os.path.realpath(node.python)),
               node.root / "held", umask, f"--reuid={user}", f"--regid={user}", node.python,
               node.root / "workloads" / workload.name, *words]
    env = node.env(HOME=own, TMPDIR=own, USER=f"user{user}", **environment)
    job = Job(command, env, node.root / "jobs", f"{user}-{workload.stem}-{'-'.join(words)}")
    node._jobs.append(job)
    return job


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

# SPDX-License-Identifier: Apache-2.0
"""An ordinary user's own mounts, made by the user as docs/tutorial.md makes those of root, told of nothing: a graph and a Triton kernel that a
job of the first node has compiled are hits of a job of the second one."""
import json
import os
import re
import shutil

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack, need
from inductorfs_testing.images import Images
from inductorfs_testing.processes import run

USER = 1000
SCRIPT = """
mount() { TMPDIR=$1/tmp inductorfs mount "$1/cache" --store "$1/store" --log "$1/daemon.log" --remote "$remote" --lookup-patience 3000; }
mount "$a"
mount "$b"
job() { "$python" -B "$job" | sed "s/^/$1 /"; }
export TMPDIR=$a/tmp
eval "$(inductorfs env "$a/cache")"
echo "triton $TRITON_CACHE_DIR"
job cold
inductorfs sync "$a/cache"
export TMPDIR=$b/tmp
eval "$(inductorfs env "$b/cache")"
job warm
job again
inductorfs unmount "$a/cache"
inductorfs unmount "$b/cache"
"""
# Other users than root may not open the device on every host.
BEFORE = 'mknod "$device" c 10 229; chmod 666 "$device"; mount --bind "$device" /dev/fuse; umask 022; exec "$@"'


@pytest.fixture(scope="module")
def told():
    """What the jobs said, and everything that the script printed."""
    if os.geteuid() != 0:
        lack("overlays and another user: root only")
    need("fusermount3")
    with Images({"2.15": ("2.15", None)}) as images, Cluster() as cluster:
        for path in (cluster.directory, cluster.redis.directory):
            path.chmod(0o755)
        cluster.redis.socket.chmod(0o777)
        programs = cluster.directory / "bin"
        programs.mkdir()
        places.copy_programs(programs)
        shutil.copytree(places.WORKLOADS, cluster.directory / "workloads")
        node = cluster.node("of-the-user", start=False)  # for its environment
        for path in [node.root, *(node.root / name / part for name in "ab" for part in ("", "cache", "store", "tmp"))]:
            path.mkdir(exist_ok=True, parents=True)
            path.chmod(0o755)
            os.chown(path, USER, USER)
        env = {**node.plain_env(), **images.variables, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(node.root), "USER": f"user{USER}",
               "LOGNAME": f"user{USER}", "a": str(node.root / "a"), "b": str(node.root / "b"), "remote": cluster.redis.url,
               "python": str(images.python("2.15")), "job": str(cluster.directory / "workloads" / "matrix_job.py"),
               "device": str(cluster.directory / "fuse"), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        done = run(["unshare", "-m", "sh", "-ec", BEFORE, "sh", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "bash", "-euo", "pipefail",
                    "-c", SCRIPT], env, seconds=400)
        logs = "\n".join(path.read_text()[-3000:] for path in node.root.glob("*/daemon.log"))
        assert done.code == 0, f"{done.out}\n{done.err[-6000:]}\n{logs}"
        jobs = {which: json.loads(line) for which, line in re.findall(r"^(cold|warm|again) (\{.*)$", done.out, re.MULTILINE)}
        yield jobs, done.out, node, logs


def test_the_variables_lead_into_the_mount(told):
    _, out, node, _ = told
    assert f"triton {node.root / 'a' / 'cache' / 'triton_cache'}\n" in out, out


def test_the_first_job_compiles(told):
    """Else the other test says nothing."""
    jobs, *_ = told
    assert jobs["cold"]["counters"]["inductor.fxgraph_cache_miss"] == 1 and jobs["cold"]["stages"] > 0, jobs


@pytest.mark.parametrize("which", ["warm", "again"])
def test_a_job_of_the_other_node_compiles_nothing(told, which):
    jobs, _, _, logs = told
    job = jobs[which]
    assert job["counters"].get("inductor.fxgraph_cache_hit") == 1 and "inductor.fxgraph_cache_miss" not in job["counters"], (job, logs)
    assert job["stages"] == 0, (job, logs)
    assert (job["digest"], job["cubin"]) == (jobs["cold"]["digest"], jobs["cold"]["cubin"])

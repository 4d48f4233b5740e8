# SPDX-License-Identifier: Apache-2.0
"""Two hosts as docs/tutorial.md makes them: root's mounts, and the jobs of an ordinary user with the variables that `inductorfs env` prints
and nothing else. torch's precompiled header, which takes most of a cold start, comes from the cluster too."""
import json
import os
import re
import shutil

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.images import Images
from inductorfs_testing.processes import run

USER = 65534
SCRIPT = """
mount() { TMPDIR=$1/tmp inductorfs mount "$1/cache" --store "$1/store" --log "$1/daemon.log" --remote "$remote" --lookup-patience 5000; }
mount "$a"
mount "$b"
job() {
  local begin=$EPOCHREALTIME
  TMPDIR=$2/tmp HOME=$2 USER=nobody LOGNAME=nobody setpriv --reuid=nobody --regid=nogroup --clear-groups bash -euc '
    eval "$(inductorfs env "$0/cache")"
    "$python" -B "$job" --jobs inference' "$2" | sed "s/^/$1 /"
  echo "took $1 $(bc <<< "$EPOCHREALTIME - $begin")"
}
job cold "$a"
inductorfs sync "$a/cache"
job first "$b"
job again "$b"
job local "$a"
for host in "$a" "$b"; do (cd "$host/tmp/torchinductor_nobody/precompiled_headers" && find . -name '*.gch' | sed "s,^,header ${host##*/} ,"); done
inductorfs stats "$b/cache" --json | tr -d '\\n' | sed 's/^/stats /'; echo
inductorfs unmount "$a/cache"
inductorfs unmount "$b/cache"
find "$a/tmp" "$b/tmp" -name '*.gch' | sed 's/^/below /'
"""


@pytest.fixture(scope="module")
def told():
    if os.geteuid() != 0:
        lack("overlays and another user: root only")
    with Images({"2.15": ("2.15", None)}) as images, Cluster() as cluster:
        for path in (cluster.directory, cluster.redis.directory):
            path.chmod(0o755)
        programs = cluster.directory / "bin"
        programs.mkdir()
        places.copy_programs(programs)
        shutil.copytree(places.WORKLOADS, cluster.directory / "workloads")
        node = cluster.node("of-root", start=False)  # for its environment
        node.root.chmod(0o755)
        for name in "ab":
            for part in ("", "cache", "store", "tmp"):
                (node.root / name / part).mkdir()
            (node.root / name).chmod(0o755)
            for part in ("cache", "tmp"):
                (node.root / name / part).chmod(0o1777)
        env = {**node.plain_env(), **images.variables, "PATH": f"{programs}:{os.environ['PATH']}", "a": str(node.root / "a"), "b": str(node.root / "b"),
               "remote": cluster.redis.url, "python": str(images.python("2.15")), "job": str(cluster.directory / "workloads" / "cpu_jobs.py")}
        done = run(["unshare", "-m", "bash", "-euo", "pipefail", "-c", SCRIPT], env, seconds=600)
        logs = "\n".join(path.read_text()[-3000:] for path in node.root.glob("*/daemon.log"))
        assert done.code == 0, f"{done.out}\n{done.err[-6000:]}\n{logs}"
        print(*re.findall(r"^took .*$", done.out, re.MULTILINE), sep="\n")
        yield {name: re.findall(rf"^{name} (.*)$", done.out, re.MULTILINE) for name in ("cold", "first", "again", "local", "header", "stats", "below")}


def counters(told, job):
    return json.loads(told[job][0])["counters"]


def test_the_first_job_compiles(told):
    """Else the other tests say nothing."""
    assert counters(told, "cold")["inductor.fxgraph_cache_miss"] >= 1


@pytest.mark.parametrize("job", ["first", "again", "local"])
def test_no_other_job_compiles(told, job):
    assert not [name for name in counters(told, job) if "miss" in name]
    assert json.loads(told[job][0])["results"] == json.loads(told["cold"][0])["results"]


def test_the_header_is_made_once_and_lies_in_both_mounts(told):
    made, found = ({line.split()[1] for line in told["header"] if line.startswith(name)} for name in "ab")
    assert made and made == found
    assert told["below"] == []


def test_the_second_host_has_made_nothing(told):
    everything = json.loads(told["stats"][0])["all"]
    assert everything["families"]["precompiled_header"]["cluster"] >= 1, everything
    assert everything["made"] == everything["missed"] == 0, everything

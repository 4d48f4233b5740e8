# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of jobs: `stats`, `jobs` and `why-miss`."""
import json
import re
import subprocess
import sys

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.processes import run, wait_until

CODE = "int answer() { return 42; }\n"
# A program of its own, so that it is a job of its own: it asks for names, as torch does, and may make them.
JOB = """
import os, sys
from pathlib import Path
root, made = Path(sys.argv[1]), sys.argv[2] == "make"
for name in sys.argv[3:]:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)  # as torch does
    if path.exists():
        path.is_file() and path.read_bytes()
    elif made:
        temporary = path.parent / ".1.2.tmp"
        temporary.write_text({code!r})
        temporary.rename(path)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def query(node, command, *more):
    done = node.cli(command, node.cache, "--json", *more)
    assert done.code == 0, done.err
    return json.loads(done.out)


def text(node, command, *more):
    done = node.cli(command, node.cache, *more)
    assert done.code == 0, done.err
    return done.out


class Job:
    """Lives until it is ended. A shell starts it: else it would be a part of this test's own job."""

    def __init__(self, node, *names, make=False):
        program = [sys.executable, "-c", JOB.format(code=CODE), str(node.cache), "make" if make else "look", *map(str, names)]
        self.process = subprocess.Popen(["sh", "-c", '"$@"; exit $?', "sh", *program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.name = f"process {int(self.process.stdout.readline())}"

    def end(self):
        self.process.communicate()
        assert self.process.returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def job_of(node, job):
    return next(one for one in query(node, "jobs")["jobs"] if one["job"] == job.name)


def knows_entries(node, count):
    """Looks at no name: the kernel would keep it."""
    wait_until(lambda: node.status()["catalog"]["entries"] == count, 20, f"{count} entries to be known")


def as_nobody(*words):
    return run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", places.program(), *words])


@pytest.fixture
def nodes(cluster):
    return cluster.quick("a"), cluster.quick("b", "--prefetch", "0")


def test_figures_tell_what_was_found_and_missed_and_made(nodes):
    a, b = nodes
    name, never = artefacts.code("one"), artefacts.code("never")
    with Job(a, name, make=True) as maker:
        a.sync()
        made = job_of(a, maker)
        assert (made["asked"], made["missed"], made["made"], made["published"]) == (1, 1, 1, 1)
        assert made["why_missed"] == {"nothing": 1}
        assert made["ended"] == ""
    wait_until(lambda: job_of(a, maker)["ended"], 20, "the job's end to be noticed")
    line = next(line for line in a.log_tail().splitlines() if " ledger.job_ended " in line)
    assert f'job="{maker.name}"' in line and " missed=1 " in line and " published=1 " in line, line
    knows_entries(b, 1)
    with Job(b, name, never) as reader:
        job = job_of(b, reader)
        assert (job["asked"], job["cluster"], job["missed"], job["made"]) == (2, 1, 1, 0)
    everything = query(b, "stats")["all"]
    assert everything["fetched"] == 1
    assert everything["fetched_bytes"] == len(CODE)
    assert everything["families"]["cpp_source"]["cluster"] >= 1
    assert query(b, "stats")["hour"]["fetched"] == 1
    with Job(b, name) as again:
        assert all(one["job"] != again.name for one in query(b, "jobs")["jobs"]), "the kernel answers it"
    shown = text(b, "stats")
    assert re.search(r"cpp_source +\d", shown) and "nobody had published it" in shown, shown
    assert f"{reader.name} (python" in text(b, "jobs")


def test_a_graph_counts_by_its_key(nodes):
    a, b = nodes
    made = artefacts.write_graph(a.cache, "key", "pickle" * 100).relative_to(a.cache)
    a.sync()
    knows_entries(b, 1)
    with Job(b, made.parent) as job:
        found = job_of(b, job)["families"]["fxgraph"]
        assert (found["asked"], found["missed"]) == (1, 0)


def test_a_miss_is_explained_by_who_has_the_key(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", facts={"torch": "another"})
    name = artefacts.write_atomic(a.cache, artefacts.code("one"), CODE).relative_to(a.cache)
    a.sync()
    nobody = artefacts.code("nobody")
    with Job(b, name, nobody) as job:
        number = job_of(b, job)["number"]
        misses = {miss["path"]: miss for miss in query(b, "why-miss", "--job", str(number))["misses"]}
        there = misses[str(name)]
        assert there["family"] == "cpp_source"
        assert [difference["facet"] for difference in there["nearest"]["differences"]] == ["torch"]
        assert "nobody in this cluster has published this key" in misses[nobody]["text"]
        shown = text(b, "why-miss")
        assert "differs in torch" in shown and "+ there: the same everywhere" in shown, shown
    gone = b.cli("why-miss", b.cache, "--job", "4711")
    assert gone.code == 1 and "no job 4711 of yours is remembered" in gone.err


def test_a_miss_while_the_cluster_is_away_is_named(nodes, cluster):
    a, b = nodes
    name = artefacts.write_atomic(a.cache, artefacts.code("one"), CODE).relative_to(a.cache)
    a.sync()
    knows_entries(b, 1)
    cluster.redis.kill()
    with Job(b, name) as job:
        assert job_of(b, job)["why_missed"] == {"late": 1}
        assert "away or too slow" in text(b, "jobs")


def test_other_users_see_their_own_jobs_only(root, nodes):
    a, _ = nodes
    with Job(a, artefacts.code("one")) as job:
        assert job_of(a, job)["user"] == 0
        for command in ("jobs", "why-miss"):
            done = as_nobody(command, a.cache, "--json")
            assert done.code == 0, done.err
            assert job.name not in done.out and "misses" not in done.out
        assert as_nobody("stats", a.cache).code == 0


def test_one_mount_needs_no_name(nodes):
    several = nodes[0].cli("stats")
    assert several.code == 2 and "several mounts are here: name one of" in several.err

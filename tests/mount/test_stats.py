# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of jobs: `stats`, `jobs` and `why-miss`."""
import json
import re
import shutil
import subprocess

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.jobs import CODE, Job, job_of, query, text
from inductorfs_testing.mounts import remount
from inductorfs_testing.processes import run, wait_until

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
    wait_until(lambda: not b.status()["remote"]["reachable"], 60, "the mount to notice")
    with Job(b, name) as job:
        assert job_of(b, job)["why_missed"] == {"away": 1}
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


def test_what_was_counted_outlives_each_worker(cluster):
    node = cluster.quick("a")
    with Job(node, artefacts.code("one"), make=True) as job, Job(node, artefacts.code("never")) as other:
        node.sync()
        before = query(node, "stats")["all"], job_of(node, job), job_of(node, other)
        assert (before[0]["asked"], before[0]["missed"], before[0]["made"], before[0]["published"]) == (2, 2, 1, 1)

        def is_same():
            misses = query(node, "why-miss", "--job", str(before[2]["number"]))["misses"]
            assert [miss["path"] for miss in misses] == [artefacts.code("never")]
            return (query(node, "stats")["all"], job_of(node, job), job_of(node, other)) == before

        assert node.cli("upgrade", node.cache).code == 0
        assert is_same()
        kept = [node.store / "ledger" / name for name in ("totals", *(str(one["number"]) for one in before[1:]))]
        wait_until(lambda: all(path.exists() for path in kept) and '"published":1' in kept[0].read_text(), 20, "it to be kept")
        node.next_worker(node.kill_worker())
        assert is_same()
    remembered = {one["job"]: one["number"] for one in query(node, "jobs")["jobs"]}
    node.unmount()
    remount(node, cluster)
    assert query(node, "stats")["all"] == before[0]
    with Job(node, artefacts.code("another")) as third:
        assert job_of(node, third)["number"] > max(remembered.values())
    assert {one["job"]: one["number"] for one in query(node, "jobs")["jobs"]}.items() >= remembered.items()
    assert (node.counters()["keys.made"], node.counters()["keys.asked"]) == (1, 3), "an alert sees no reset"


def test_stats_tell_of_each_program(root, cluster):
    node = cluster.quick("a")
    with Job(node, artefacts.code("one"), make=True) as job:
        node.sync()
        assert job_of(node, job)["script"] == "-c"
        users = query(node, "stats")["users"]
        assert [(one["user"], one["asked"], one["hit_percent"], one["made"]) for one in users] == [(0, 1, 0.0, 1)]
        assert [one["program"].split()[-1] for one in users[0]["programs"]] == ["-c"]
        assert "(python" in text(node, "jobs") and " -c, uid 0, " in text(node, "jobs")
        shown = text(node, "stats")
        assert re.search(r"hit rate +0\.0 % of 1 keys", shown) and re.search(r"uid 0 +1 +0\.0 % +1 ", shown), shown
        others = as_nobody("stats", node.cache, "--json")
        assert others.code == 0 and json.loads(others.out)["users"] == [] and json.loads(others.out)["all"]["made"] == 1


def test_a_program_without_an_interpreter_is_no_job(root, cluster, tmp_path):
    """Nothing of Python may be among its ancestors, as this test is."""
    node = cluster.quick("a")
    name = artefacts.write_atomic(node.cache, artefacts.code("one"), CODE)
    node.sync()
    before = query(node, "stats")["all"], query(node, "jobs")
    done = tmp_path / "done"
    script = f"cat {node.cache}/{artefacts.code('never')}; ls -l {name}; sleep 1; rm {name}; touch {done}"
    subprocess.run(["setsid", "--fork", "sh", "-c", f"({script}) &"], stderr=subprocess.DEVNULL, check=True)
    wait_until(done.exists, 20, "it to end")
    assert not name.exists()
    after = query(node, "stats")["all"], query(node, "jobs")
    assert after[0] == before[0] and len(after[1]["jobs"]) == len(before[1]["jobs"])


def test_status_says_that_the_history_is_not_kept(cluster):
    node = cluster.quick("a")
    node.unmount()
    shutil.rmtree(node.store / "ledger", ignore_errors=True)
    (node.store / "ledger").write_text("a file is in the way")
    node.start()
    with Job(node, artefacts.code("never")):
        (told,) = wait_until(lambda: [one for one in node.status()["warnings"] if "not kept for the next worker" in one], 20, "the warning")
    assert f"{node.store}/ledger" in told and "free some space" in told.rsplit("; ", 1)[1], told
    found = json.loads(node.cli("doctor", node.cache, "--json").out)
    assert [one["remedy"].startswith("free some space") for one in found if told in one["what"]] == [True], found


def test_sync_without_time_says_that_it_had_none(cluster):
    done = (node := cluster.quick("a")).cli("sync", node.cache, "--timeout", "0")
    assert done.code == 1 and done.err.startswith("inductorfs: not done within --timeout 0 s: "), done


def test_sync_says_what_it_waits_for(nodes, cluster):
    a, _ = nodes
    assert a.cli("sync", a.cache, "--timeout", "1").err == ""
    cluster.redis.kill()
    wait_until(lambda: not a.status()["remote"]["reachable"], 60, "the mount to notice")
    artefacts.write_atomic(a.cache, artefacts.code("waits"), CODE)
    done = a.cli("sync", a.cache, "--timeout", "3")
    first, last = done.err.splitlines()
    assert done.code == 1 and first.startswith(f"inductorfs: waits for up to 1 s more: the server {cluster.redis.url} does not answer: "), done.err
    assert f"remote {cluster.redis.url} does not answer: " in last and "unavailable" not in done.err, done.err

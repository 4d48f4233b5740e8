# SPDX-License-Identifier: Apache-2.0
"""Why a job compiled: `inductorfs why-miss` names the reason of that moment, also when the job has made and published since what it
had missed."""
import json
import os
import subprocess
import time

import pytest
from inductorfs_testing import artefacts, mounts
from inductorfs_testing.jobs import CODE, Job, job_of, query, text
from inductorfs_testing.processes import wait_until


def explained(node, job):
    """Each reason of the job with what was found out."""
    report = query(node, "why-miss", "--job", str(job_of(node, job)["number"]))
    return {one["reason"]: one for one in report["reasons"]}


def reason_of(node, job):
    reasons = explained(node, job)
    assert len(reasons) == 1, reasons
    return next(iter(reasons))


def knows(node, name):
    """Looks at no name: the kernel would keep it."""
    wait_until(lambda: json.loads(node.cli("explain", node.cache / name, "--json").out)["visible"], 20, f"{name} to be known")


def made(node, name, content=CODE):
    artefacts.write_atomic(node.cache, name, content)
    node.sync()
    return name


@pytest.fixture
def nodes(cluster):
    return cluster.quick("a"), cluster.quick("b", "--prefetch", "0")


def test_the_first_of_the_cluster_and_who_has_other_facts_are_told_apart_after_the_job_has_saved(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", facts={"torch": "another"})
    there, nobody = made(a, artefacts.code("one")), artefacts.code("nobody")
    with Job(b, there, make=True) as differs, Job(b, nobody, make=True) as first:
        b.sync()
        assert (b.cache / there).exists() and (b.cache / nobody).exists()
        facts = explained(b, differs)["facts"]
        assert facts["count"] == 1 and [one["facet"] for one in facts["nearest"]["differences"]] == ["torch"]
        assert reason_of(b, first) == "first"
        shown = text(b, "why-miss", "--job", str(job_of(b, differs)["number"]))
    verdict = shown.splitlines()[0]
    assert verdict.startswith("verdict") and "it compiled 1 of 1 key, because other nodes have it under other facts (torch: here " \
        "another, there the same everywhere)" in verdict, shown


def test_a_frozen_cluster_is_the_reason(nodes):
    a, b = nodes
    name = made(a, artefacts.code("one"))
    knows(b, name)
    assert a.cli("freeze", "--why", "driver 999 miscompiles", a.cache).code == 0
    wait_until(lambda: b.status()["cluster"]["frozen"], 20, "the freeze to be obeyed")
    with Job(b, name) as job:
        assert "driver 999" in explained(b, job)["frozen"]["text"]
    assert "an operator has frozen the cluster" in text(b, "stats")


def test_what_a_program_has_deleted_here_is_the_reason(nodes):
    a, b = nodes
    name, graph = made(a, artefacts.code("one")), artefacts.write_graph(a.cache, "key", "pickle" * 99).relative_to(a.cache)
    a.sync()
    knows(b, name)
    knows(b, graph)
    subprocess.run(["rm", "-r", *(str(b.cache / one) for one in (name, graph.parent.parent))], check=True)
    with Job(b, name, graph.parent) as job:
        assert reason_of(b, job) == "deleted"
    subprocess.run(["rm", "-r", *(str(a.cache / one) for one in (name, graph.parent.parent))], check=True)
    with Job(a, name, graph.parent) as job:
        assert reason_of(a, job) == "deleted", "its own"


def test_an_empty_key_directory_is_a_miss_and_the_purge_is_the_reason(nodes):
    a, b = nodes
    graph = artefacts.write_graph(a.cache, "key", "pickle" * 99).relative_to(a.cache)
    a.sync()
    knows(b, graph)
    assert a.cli("purge", "--family", "fxgraph", "--yes", a.cache).code == 0
    wait_until(lambda: not os.path.lexists(a.cache / graph), 20, "the purge to be obeyed")
    assert (a.cache / graph.parent).is_dir(), "what this test is about"
    for node in nodes:
        with Job(node, graph.parent) as job:
            family = job_of(node, job)["families"]["fxgraph"]
            assert (family["asked"], family["local"], family["missed"]) == (1, 0, 1)
            assert "purge of 20" in explained(node, job)["purged"]["text"]


def test_bytes_that_the_server_has_lost_are_the_reason(nodes, cluster):
    a, b = nodes
    name = made(a, artefacts.code("one"))
    wait_until(lambda: b.status()["catalog"]["entries"] == 1, 20, "the entry to be known")
    for key in mounts.blobs(cluster):
        cluster.redis.command("DEL", key)
    with Job(b, name) as job:
        assert reason_of(b, job) == "lost"


def test_a_server_that_is_away_is_the_reason(nodes, cluster):
    a, b = nodes
    name = made(a, artefacts.code("one"))
    wait_until(lambda: b.status()["catalog"]["entries"] == 1, 20, "the entry to be known")
    cluster.redis.kill()
    wait_until(lambda: not b.status()["remote"]["reachable"], 60, "the mount to notice")
    with Job(b, name, artefacts.code("not known to be there")) as job:
        assert reason_of(b, job) == "away"


def test_a_server_that_takes_nothing_is_the_reason(nodes, cluster):
    a, _ = nodes
    cluster.redis.command("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "noeviction")
    artefacts.write_atomic(a.cache, artefacts.code("refused"), CODE)
    wait_until(lambda: a.status()["remote"]["refuses_writes"], 30, "the server to refuse")
    with Job(a, artefacts.code("one")) as job:
        assert "memory" in explained(a, job)["full"]["text"]


def test_a_store_without_room_is_the_reason(cluster):
    a = cluster.quick("a")
    name = artefacts.code("one")
    artefacts.write_atomic(a.cache, name, mounts.text(8 << 20))
    a.sync()
    with mounts.tmpfs(cluster.directory / "disk", "size=6m") as disk:
        b = cluster.node("b", start=False)
        b.store = disk / "store"
        b.start(*cluster.options("--prefetch", "0"))
        wait_until(lambda: b.status()["catalog"]["entries"] == 1, 20, "the entry to be known")
        with Job(b, name) as job:
            assert reason_of(b, job) == "no_room"
        b.unmount()


def test_nothing_is_shared_where_a_fact_is_not_known(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", facts={"torch": None})
    name = made(a, artefacts.code("one"))
    with Job(b, name) as job:
        assert "torch" in explained(b, job)["private"]["text"]


def test_what_the_program_does_not_take_and_makes_again_is_told(nodes):
    a, b = nodes
    graph = artefacts.write_graph(a.cache, "key", "pickle" * 99).relative_to(a.cache)
    a.sync()
    knows(b, graph)
    with Job(b, graph.parent, graph.parent / artefacts.torch_hash("another candidate"), make=True) as job:
        family = job_of(b, job)["families"]["fxgraph"]
        assert (family["asked"], family["cluster"], family["missed"], family["refused"], family["made"]) == (1, 1, 0, 1, 1)
        assert reason_of(b, job) == "refused"
        assert "it was found, and the program did not take it" in text(b, "why-miss").splitlines()[0]


def test_a_job_is_found_by_number_pid_script_and_time(nodes):
    a, _ = nodes
    with Job(a, artefacts.code("one")) as job:
        one = job_of(a, job)
        pid = job.name.split()[1]
        for how in (("--pid", pid), ("--script", one["command"]), ("--script", f"{one['command']} {one['script']}"), ("--at", time.strftime("%Y-%m-%dT%H:%M", time.gmtime())),
                    ("--at", one["started"][11:16]), ("--job", str(one["number"])), ()):
            assert query(a, "why-miss", *how)["number"] == one["number"], how
    for how in (("--pid", "1"), ("--script", "no such script"), ("--at", "2001-01-01T00:00"), ("--job", "4711")):
        gone = a.cli("why-miss", a.cache, *how)
        assert gone.code == 1 and "inductorfs jobs lists them" in gone.err, gone.err


    for how, told in ((("--at", "25:99"), "--at 25:99: give a time"), (("--at", "nonsense"), "give a time"), (("--at", "9:05"), "give a time"),
                      (("--script", ""), "an empty text names no job")):
        wrong = a.cli("why-miss", a.cache, *how)
        assert wrong.code == 2 and told in wrong.err, (how, wrong)


def test_a_mount_without_a_server_has_nothing_of_the_cluster(cluster):
    node = cluster.node("local", start=False)
    node.remote = None
    node.start(*cluster.options())
    with Job(node, artefacts.code("one"), make=True) as job:
        node.sync()
        assert reason_of(node, job) == "local"
        assert job_of(node, job)["published"] == 0


def test_many_misses_of_which_few_are_remembered_have_the_reason_of_all(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", facts={"torch": "another"})
    names = [artefacts.write_atomic(a.cache, artefacts.code(str(number)), CODE).relative_to(a.cache) for number in range(100)]
    a.sync()
    with Job(b, *names) as job:
        facts = explained(b, job)["facts"]
        assert facts["count"] == 100 and 2 <= facts["asked"] < 10
        assert "it compiled 100 of 100 keys, because other nodes have it under other facts (torch" in text(b, "why-miss")


def test_a_purge_is_the_reason_after_an_upgrade_too(nodes):
    a, _ = nodes
    graph = artefacts.write_graph(a.cache, "key", "pickle" * 99).relative_to(a.cache)
    a.sync()
    assert a.cli("purge", "--family", "fxgraph", "--yes", a.cache).code == 0
    assert a.cli("upgrade", a.cache).code == 0
    wait_until(lambda: a.status()["catalog"]["synced"], 40, "the index; before, that is the reason")
    with Job(a, graph.parent) as job:
        assert reason_of(a, job) == "purged"


def test_jobs_that_missed_nothing_are_named_behind_the_one_that_did(nodes):
    a, b = nodes
    name = made(a, artefacts.code("one"))
    knows(b, name)
    with Job(b, artefacts.code("nobody")) as missed:
        number = job_of(b, missed)["number"]
        with Job(b, name) as hit:
            assert query(b, "why-miss")["number"] == number
            assert "1 later job has missed nothing" in text(b, "why-miss")
            assert text(b, "why-miss", "--job", str(job_of(b, hit)["number"])).startswith("verdict       it missed nothing")


def test_the_directory_of_a_key_is_explained(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", facts={"torch": "another"})
    key = artefacts.write_graph(a.cache, "key", "pickle" * 99).relative_to(a.cache).parent
    a.sync()
    there = json.loads(a.cli("explain", a.cache / key, "--json").out)
    assert there["visible"] and there["family"] == "fxgraph" and there["scope"]
    shown = b.cli("explain", b.cache / key).out
    assert shown.splitlines()[0] == "verdict       other nodes have this very key, made under other facts than count here", shown
    assert "differs in torch" in shown and "family        fxgraph" in shown
    nobody = b.cli("explain", b.cache / artefacts.graph("nobody", "x")).out
    assert "nobody in this cluster has published this key" in nobody.splitlines()[0], nobody

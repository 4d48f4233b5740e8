# SPDX-License-Identifier: Apache-2.0
"""`inductorfs warm`: what the cluster has for a host lies in its store before the first job comes."""
import contextlib
import json
import os
import pty
import signal
import subprocess

from inductorfs_testing import artefacts, environments, places
from inductorfs_testing.environments import Writer
from inductorfs_testing.mounts import appears, blobs, populate, suspended, text
from inductorfs_testing.processes import wait_until

LEARNED = ("--writers", "learned", "--prefetch", "0")
MIB = 1 << 20


def warm(node, *options, code=0):
    done = node.cli("warm", node.cache, "--json", *options)
    assert done.code == code, f"{done.code}: {done.out}{done.err}{node.log_tail()}"
    return json.loads(done.out) | {"line": done.err}


def library_sources(node, count, size):
    """Artefacts that compress little; their names."""
    names = [artefacts.code(f"large {index}") for index in range(count)]
    for index, name in enumerate(names):
        artefacts.write_atomic(node.cache, name, text(size, index))
    node.sync()
    return names


def test_all_is_here_before_a_job_asks_for_it(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    names = populate(a)
    a.sync()
    for name in names:
        appears(b.cache / name.parent)
    before = b.counters().get("fetch.blobs", 0)
    report = warm(b)
    assert report["complete"] and report["followed"] == report["scopes"] > 1
    assert report["blobs"] == report["here"] + report["fetched"] == len(blobs(cluster)) and report["fetched"] > 10
    with suspended(cluster.redis):
        for name in names:
            if "__grp__" not in name.name:
                assert (b.cache / name).read_bytes() == (a.cache / name).read_bytes()
    assert b.counters().get("fetch.blobs", 0) == before
    again = warm(b)
    assert again["fetched"] == 0 and again["here"] == report["blobs"] and again["complete"]


def test_a_dry_run_says_what_is_here_without_the_server_and_fetches_nothing(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    names = populate(a)
    a.sync()
    for name in names:
        appears(b.cache / name.parent)
    before = warm(b, "--dry-run")
    assert before["fetched"] == 0 and before["left"] > 10 and before["here"] + before["left"] == before["blobs"]
    said = b.cli("warm", b.cache, "--dry-run").out
    assert f"{before['here']} of {before['blobs']} artefacts" in said and f"{before['left']} artefacts (" in said, said
    assert b.counters().get("fetch.blobs", 0) == 0
    warm(b)
    said = b.cli("warm", b.cache, "--dry-run")
    assert said.code == 0 and f"{before['blobs']} of {before['blobs']} artefacts" in said.out and "compiled again" not in said.out, said.out


def test_a_dry_run_answers_when_the_server_has_ended(cluster):
    a = cluster.quick("a")
    populate(a)
    a.sync()
    known = a.status()["catalog"]["entries"]
    cluster.redis.kill()
    said = a.cli("warm", a.cache, "--dry-run")
    lines = said.out.splitlines()
    assert said.code == 0 and len(lines) == 3 and lines[0].startswith("the server does not answer now ("), said
    assert f"{known} entries of the cluster are known" in lines[1] and "0 groups wait" in lines[2], said


def test_a_node_without_jobs_gets_what_its_first_job_will_use(cluster):
    cluster.directory.chmod(0o755)
    packages = environments.make(cluster.directory / "environment")
    a, b = (cluster.node(name, options=LEARNED) for name in ("a", "b"))
    for node in (a, b):
        (node.cache / "team").mkdir()
    with Writer(a.cache / "team", packages) as one:
        name = one.write("one")
    a.sync()
    report = wait_until(lambda: (found := warm(b))["scopes"] and found, 20, "the announcement of the scopes")
    assert report["complete"] and report["followed"] == 1 and report["fetched"] >= 1
    assert report["scopes"] == len(cluster.redis.keys("*:about")) > 5 and report["other_hosts"] == 0, "all of them are this host's"
    with Writer(b.cache / "team", packages) as one:
        assert one.read("fxgraph/none") is None  # as torch asks first
        wait_until(lambda: one.read(name) == "one", 20, "what the other node has published")
    assert b.counters().get("fetch.blobs", 0) == 0, "the lookup has found it in the store"


def test_what_belongs_to_other_hosts_is_left_there(cluster):
    a = cluster.quick("a", facts={"gpu": "another", "gpu_arch": "another", "libc": "another", "cpu": "another"})
    graph = artefacts.write_graph(a.cache, "graph", "pickle" * 100)
    a.sync()
    b = cluster.quick("b", "--prefetch", "0")
    report = wait_until(lambda: (found := warm(b, "--family", "fxgraph"))["other_hosts"] and found, 20, "the announcement of the scopes")
    assert report["complete"] and report["entries"] == report["fetched"] == 0
    scope = json.loads(a.cli("explain", a.cache / graph, "--json").out)["scope"]
    refused = b.cli("warm", b.cache, "--scope", scope[:12])
    assert refused.code == 1 and "no job on this host can use the scope" in refused.err and "other facts (gpu)" in refused.err
    assert b.cli("warm", b.cache, "--scope", "0123456789").code == 2
    assert b.cli("warm", b.cache, "--family", "graphs").code == 2
    assert b.cli("warm", b.cache, "--pattern", "a//b").code == 2


def test_a_selection(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    populate(a)
    a.sync()
    code = warm(b, "--family", "fxgraph")
    assert code["entries"] == 6 and code["complete"]
    pattern = warm(b, "--pattern", "triton/**")
    assert pattern["entries"] > 0 and pattern["blobs"] < len(blobs(cluster)) - 6
    scope = json.loads(a.cli("explain", a.cache / artefacts.code("code 0"), "--json").out)["scope"]
    assert warm(b, "--scope", scope)["scopes"] == 1


def test_a_limit_and_what_comes_later(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    library_sources(a, 12, MIB)
    part = warm(b, "--limit", "5M", code=3)
    assert not part["complete"] and 0 < part["fetched_bytes"] <= 5 * MIB and part["left"] > 0 and "--limit" in part["why"][0]
    rest = warm(b)
    assert rest["complete"] and rest["here"] == part["fetched"] and rest["here"] + rest["fetched"] == 12


def test_a_store_that_is_too_small_keeps_what_has_come(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0", "--store-limit", "64M")
    library_sources(a, 20, 5 * MIB)
    report = warm(b, code=3)
    assert "the store is too small" in report["why"][0] and "did not come" in report["line"]
    assert 40 * MIB < report["fetched_bytes"] <= 64 * MIB and report["left"] + report["fetched"] == 20
    assert b.status()["store"]["evicted"] == 0
    assert warm(b, code=3)["here"] == report["fetched"]


def test_bytes_that_the_cluster_has_lost_are_counted(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    library_sources(a, 5, 1000)
    gone, damaged = list(blobs(cluster))[:2]
    cluster.redis.command("DEL", gone)
    cluster.redis.command("SETRANGE", damaged, "200", "damage")
    report = warm(b, code=3)
    assert report["failed"] == 2 and report["fetched"] == 3
    assert any("lost" in why for why in report["why"]) and any("damaged" in why for why in report["why"])


def test_a_remote_that_is_away(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    library_sources(a, 3, 1000)
    with suspended(cluster.redis):
        late = b.cli("warm", b.cache, "--timeout", "1")
    assert late.code == 1 and "the remote does not answer" in late.err and "run the command again" in late.err
    assert f"remote {cluster.redis.url}: " in late.err, late.err
    assert wait_until(lambda: b.cli("warm", b.cache).code == 0, 20, "the remote")


def test_progress_on_a_terminal(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    library_sources(a, 12, 8 * MIB)
    shown, other = pty.openpty()
    with subprocess.Popen([places.program(), "warm", b.cache], env=b.env(), stdout=subprocess.PIPE, stderr=other) as job:
        os.close(other)
        lines = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal any more
            while piece := os.read(shown, 4096):
                lines += piece
        out = job.stdout.read().decode()
    os.close(shown)
    assert job.returncode == 0 and "fetched 12 artefacts (96.0 MiB); 0 were here" in out
    assert b"\r" in lines and b"reading what the cluster has" in lines


def test_an_end_by_signal_loses_nothing(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    library_sources(a, 12, 8 * MIB)
    with subprocess.Popen([places.program(), "warm", b.cache], env=b.env(), stdout=subprocess.DEVNULL) as job:
        wait_until(lambda: b.status()["store"]["blobs"] > 0, 20, "the first blobs")
        job.send_signal(signal.SIGINT)
        assert job.wait(20) in (-signal.SIGINT, 0)
    before = b.status()["store"]["blobs"]
    rest = warm(b)
    assert rest["complete"] and rest["here"] >= before > 0 and rest["here"] + rest["fetched"] == 12

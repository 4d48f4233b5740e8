# SPDX-License-Identifier: Apache-2.0
"""`inductorfs nodes`, `freeze` and `purge`: two mounts on a real Redis, and what an operator sees of them and orders."""
import contextlib
import json
import os
import re
import shutil
import signal
import time

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import appears, disappears, published, remount, suspended
from inductorfs_testing.processes import PATIENCE, run, wait_until

PROGRAM = places.program()
FREEZES_WITHIN = 10.0 * PATIENCE


def listed(node, *where):
    done = run([PROGRAM, "nodes", "--json", *(where or [node.cache])], node.env(), 30)
    assert done.code == 0, done.err
    return json.loads(done.out)["nodes"]


def mountpoints(nodes):
    return {one.get("mountpoint") for one in nodes}


@pytest.fixture(name="pair")
def two_nodes(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    wait_until(lambda: {str(a.cache), str(b.cache)} <= mountpoints(listed(a)), 20, "both to be listed")
    return a, b


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def share(writer, reader, key):
    """The path below the mount of a file that `writer` made and `reader` has."""
    path = artefacts.write_graph(writer.cache, key, f"content of {key}" * 9).relative_to(writer.cache)
    writer.sync()
    appears(reader.cache / path)
    assert (reader.cache / path).read_bytes()
    return path


def test_all_mounts_are_listed_until_they_end(cluster, pair):
    a, b = pair
    share(a, b, "key")
    remote = ("--remote", cluster.redis.url)
    wait_until(lambda: any(one["counters"].get("fetch.blobs") for one in listed(b, *remote)), 20, "the counters to be told")
    ours = {one["mountpoint"]: one for one in listed(b, *remote)}
    one = ours[str(a.cache)]
    assert one["version"] and one["host"] == os.uname().nodename and one["uid"] == 0 and one["queued"] == 0
    assert one["age_s"] < 90 and one["scope_count"] >= len(one["scopes"]) > 0 and one["frozen"] is False
    text = run([PROGRAM, "nodes", *remote], a.env(), 30).out
    assert text.splitlines()[0].split()[:3] == ["HOST", "MOUNTPOINT", "VERSION"] and str(b.cache) in text
    assert "mounts that may only read the server" in text
    cluster.redis.command("CONFIG", "SET", "maxmemory", "64mb", "maxmemory-policy", "volatile-ttl")
    assert re.search(r"^server: Redis \S+, [\d.]+ (KiB|MiB) of 64.0 MiB volatile-ttl$", run([PROGRAM, "nodes", *remote], a.env(), 30).out, re.M)
    assert all(cluster.redis.command("PTTL", key) > 0 for key in cluster.redis.keys("*:{nodes}:*"))
    b.unmount()
    assert str(b.cache) not in mountpoints(listed(a))


def test_nodes_needs_a_cluster_and_names_the_remedy(cluster, place):
    done = run([PROGRAM, "nodes"], place.env(), 30)
    assert done.code == 2 and "give --remote URL or the MOUNTPOINT" in done.err
    done = run([PROGRAM, "nodes", "--remote", f"unix://{place.root}/absent.sock"], place.env(), 30)
    assert done.code == 1 and "absent.sock" in done.err and done.err.count("\n") == 1
    local = cluster.node("local", start=False)
    local.remote = None
    local.start(*cluster.options())
    done = local.cli("nodes", local.cache)
    assert done.code == 1 and "has no --remote" in done.err


def test_what_others_have_put_there_breaks_nothing(cluster, pair):
    a, b = pair
    redis, prefix = cluster.redis, "ifs1:{nodes}"
    redis.command("SET", f"{prefix}:node:aa", b"\xff\x1b[2J{" * 100, "PX", 80_000)
    redis.command("SET", f"{prefix}:node:bb", json.dumps({"v": 9, "host": "new\x1b[2J", "mountpoint": "/m", "started": -4, "queued": "many",
                                                       "counters": [7], "unheard_of": {"of": 1}}), "PX", 80_000)
    redis.command("SET", f"{prefix}:node:cc", b"x" * 2_000_000, "PX", 80_000)
    redis.command("LPUSH", f"{prefix}:node:dd", "x")
    for name in ("aa", "bb", "cc", "dd", "ee", "../x", "\n"):
        redis.command("ZADD", f"{prefix}:registry", int(time.time() * 1000), name)
    redis.command("SET", f"{prefix}:orders", b"\xff{]")
    nodes = {one["id"]: one for one in listed(a)}
    assert nodes["aa"]["unreadable"] and nodes["cc"]["unreadable"] and "ee" not in nodes and "dd" not in nodes
    assert nodes["bb"]["unheard_of"] == {"of": 1}
    text = a.cli("nodes", a.cache).out
    assert "\x1b" not in text and "/m" in text and "mount aa" in text
    share(a, b, "under garbage")
    for order in (b'{"freeze":[],"purges":{"x":1}}', b"[" * 60_000, b"x" * 900_000):
        redis.command("SET", f"{prefix}:orders", order)
        time.sleep(1)
    redis.command("DEL", f"{prefix}:orders", f"{prefix}:registry")
    redis.command("LPUSH", f"{prefix}:orders", "x")
    redis.command("LPUSH", f"{prefix}:registry", "x")
    share(a, b, "under keys of other types")
    done = a.cli("freeze", a.cache, "--timeout", "0")
    assert done.code in (0, 1) and "frozen" in done.out, done.err
    assert a.cli("freeze", "--lift", a.cache, "--timeout", "0").code in (0, 1)
    wait_until(lambda: {str(a.cache), str(b.cache)} <= mountpoints(listed(a)), 120, "both to be listed again")
    share(a, b, "afterwards")


def test_a_freeze_hides_what_the_cluster_has_and_publishes_nothing_until_it_is_lifted(cluster, pair):
    a, b = pair
    path = share(a, b, "key")
    other = artefacts.write_graph(b.cache, "another", "of b" * 99).relative_to(b.cache)
    b.sync()
    appears(a.cache / other)
    began = time.monotonic()
    done = a.cli("freeze", "--why", "driver 999 miscompiles", "--remote", cluster.redis.url)
    assert done.code == 0 and "2 of 2 live mounts have obeyed" in done.out, (done.out, done.err)
    assert time.monotonic() - began < FREEZES_WITHIN
    disappears(b.cache / path, 2)
    disappears(a.cache / other, 2)
    assert (a.cache / path).read_bytes()  # its own
    status = b.status()
    assert status["cluster"]["frozen"] and any("driver 999" in line and "freeze --lift" in line for line in status["warnings"])
    assert "driver 999" in b.cli("explain", b.cache / path).out and "driver 999" in b.cli("doctor", b.cache).out
    assert "mount.frozen" in b.log.read_text() and all(one["frozen"] for one in listed(a))
    before = published(cluster)
    late = artefacts.write_graph(a.cache, "late", "made while frozen" * 9).relative_to(a.cache)
    done = a.cli("sync", a.cache, "--timeout", "1000", seconds=50)
    assert done.code == 1 and "frozen" in done.err, "an operator has to lift it: nothing to wait for"
    assert published(cluster) == before and not os.path.lexists(b.cache / late)
    done = a.cli("freeze", "--lift", a.cache)
    assert done.code == 0, done.err
    appears(b.cache / path)
    appears(b.cache / late)
    assert not b.status()["cluster"]["frozen"]


def test_a_freeze_outlives_a_restart_without_the_server_and_a_server_that_lost_it(cluster, pair):
    a, b = pair
    path = share(a, b, "key")
    assert a.cli("freeze", a.cache).code == 0
    b.unmount()
    with suspended(cluster.redis):
        remount(b, cluster)
        assert b.status()["cluster"]["frozen"] and not os.path.lexists(b.cache / path)
    cluster.redis.command("DEL", "ifs1:{nodes}:orders")
    wait_until(lambda: str(b.cache) in mountpoints(listed(a)), 120, "the mount to be listed again")
    # Who obeys this order has heard the server that lost the freeze.
    done = a.cli("purge", "--yes", "--pattern", "nowhere/*", a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "2 of 2 live mounts" in done.out, (done.out, done.err)
    assert b.status()["cluster"]["frozen"] and not os.path.lexists(b.cache / path)
    assert a.cli("freeze", "--lift", a.cache).code == 0
    appears(b.cache / path)


def test_a_freeze_from_a_clock_that_was_ahead_ends_with_the_next_lift(cluster, pair):
    a, b = pair
    path = share(a, b, "key")
    ahead = int((time.time() + 23 * 3600) * 1000)
    order = json.dumps({"v": 1, "freeze": {"id": "aabb", "frozen": True, "why": "ahead", "by": "x", "at": ahead}, "purges": [], "dropped": 0})
    for lost in (False, True):
        cluster.redis.command("SET", "ifs1:{nodes}:orders", order.replace("aabb", f"aabb{int(lost)}").replace(str(ahead), str(ahead + lost * 3600)))
        for node in pair:
            wait_until(lambda node=node: node.status()["cluster"]["frozen"], 60, "the mounts to obey")
        disappears(b.cache / path, 20)
        if lost:  # with all that the server had
            wait_until(lambda: all(one["freeze_at"] == ahead + 3600 for one in listed(a)), 60, "the mounts to tell it")
            cluster.redis.command("DEL", "ifs1:{nodes}:orders")
        done = a.cli("freeze", "--lift", a.cache)
        assert done.code == 0 and "2 of 2 live mounts have obeyed" in done.out, (done.out, done.err)
        appears(b.cache / path)


def test_a_purge_is_obeyed_by_mounts_that_have_obeyed_one_from_a_clock_that_was_ahead(cluster, pair):
    a, b = pair
    ahead = int((time.time() + 23 * 3600) * 1000)
    orders = {"v": 1, "freeze": {}, "purges": [{"id": ahead, "selection": {"pattern": "nowhere/*"}}], "dropped": 0}
    cluster.redis.command("SET", "ifs1:{nodes}:orders", json.dumps(orders))
    wait_until(lambda: all(one["purged"] == ahead for one in listed(a)), 60, "the mounts to obey")
    cluster.redis.command("DEL", "ifs1:{nodes}:orders")
    path = share(a, b, "key")
    done = a.cli("purge", "--yes", "--all", a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "2 of 2 live mounts" in done.out, (done.out, done.err)
    disappears(a.cache / path, 2)  # the writer's own: it has not only said that it obeyed


def test_a_mount_on_a_copied_store_is_another_one(cluster):
    a = cluster.quick("a")
    a.unmount()
    b = cluster.node("b", start=False)
    shutil.copytree(a.store, b.store, symlinks=True, dirs_exist_ok=True)
    remount(a, cluster)
    remount(b, cluster)
    wait_until(lambda: {str(a.cache), str(b.cache)} <= mountpoints(listed(a)), 20, "both to be listed")
    assert len({one["id"] for one in listed(a)}) == 2
    with stopped(b.worker()):
        done = a.cli("freeze", a.cache, "--timeout", "10")  # a beats within 6.25 s
        assert done.code == 1 and "1 of 2 live mounts have obeyed" in done.out, (done.out, done.err)


def test_a_purge_counts_first_and_then_takes_what_is_selected_from_the_cluster_and_all_mounts(cluster, pair):
    a, b = pair
    gone, kept = share(a, b, "bad"), share(a, b, "good")
    orders = ("GET", "ifs1:{nodes}:orders")
    before, ordered = published(cluster), cluster.redis.command(*orders)
    where = ("--pattern", str(gone.parent) + "/*", a.cache)
    dry = a.cli("purge", *where)
    assert dry.code == 0 and "1 of 2 entries" in dry.out and str(gone) in dry.out and "nothing was changed" in dry.out, dry.out
    assert cluster.redis.command(*orders) == ordered, "what no mount is told to remove stays"
    assert published(cluster) == before and os.path.lexists(a.cache / gone) and os.path.lexists(b.cache / gone)
    reader = os.open(a.cache / gone, os.O_RDONLY)
    done = b.cli("purge", "--yes", "--pattern", str(gone.parent) + "/*", "--remote", cluster.redis.url, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "1 entries are removed" in done.out and "2 of 2 live mounts" in done.out, (done.out, done.err)
    disappears(a.cache / gone, 2)  # the writer's own
    disappears(b.cache / gone, 2)
    assert os.read(reader, 9) == b"content o"
    os.close(reader)
    assert published(cluster) == [str(kept)]
    assert (a.cache / kept).read_bytes() and (b.cache / kept).read_bytes()
    again = artefacts.write_graph(b.cache, "bad", "content of bad" * 9).relative_to(b.cache)
    b.sync()
    appears(a.cache / again)  # compiled anew, it is shared as ever


def test_a_purge_by_digest_removes_the_blob_and_by_scope_and_family_what_they_name(cluster, pair):
    a, b = pair
    path = share(a, b, "key")
    told = json.loads(a.cli("explain", "--json", a.cache / path).out)
    for wrong in (("--digest", "00"), ("--scope", "xyz"), ("--family", "nothing"), ("--older-than", "1y"), ("--older-than", "30"), ("--scope", "0" * 12), (), ("--all", "--torch", "2")):
        done = a.cli("purge", *wrong, a.cache)
        assert done.code == 2 and done.err.count("\n") == 1, (wrong, done.err)
    nothing = [("--family", "triton_kernel"), ("--older-than", "1h"), ("--digest", "0" * 64)]
    for selection in nothing:
        assert "0 of 1 entries" in a.cli("purge", *selection, a.cache).out or "0 of 0 entries" in a.cli("purge", *selection, a.cache).out
    both = ("--family", told["family"], "--scope", told["scope"][:12], "--digest", told["digest"])
    assert "1 of 1 entries" in a.cli("purge", *both, a.cache).out
    assert "0 of 1 entries" in a.cli("purge", *both, "--pattern", "nowhere/*", a.cache).out
    assert cluster.redis.keys("*:b:*")
    assert a.cli("purge", "--yes", *both, a.cache, "--timeout", str(15 * PATIENCE)).code == 0
    assert not published(cluster) and cluster.redis.keys("*:b:*"), "an entry that is not selected may need the bytes"
    disappears(a.cache / path, 2)
    disappears(b.cache / path, 2)
    assert a.cli("purge", "--yes", "--digest", told["digest"], a.cache, "--timeout", str(15 * PATIENCE)).code == 0
    assert not cluster.redis.keys("*:b:*")


def test_a_mount_that_does_not_answer_is_named_and_obeys_when_it_is_back(cluster, pair):
    a, b = pair
    path = share(b, a, "key")
    with stopped(b.worker()):
        done = a.cli("purge", "--yes", "--all", a.cache, "--timeout", "10")  # a beats within 6.25 s
        assert done.code == 1 and f"{b.cache}" in done.err and "NO " in done.out, (done.out, done.err)
        assert f"{a.cache}" not in done.err
    disappears(b.cache / path, 30)
    wait_until(lambda: all(one["purged"] for one in listed(a)), 30, "the mount to obey")


def test_mounts_that_a_full_server_has_forgotten_are_waited_for(cluster, pair):
    a, b = pair
    nodes = cluster.redis.keys("*:{nodes}:node:*")
    cluster.redis.command("DEL", *nodes)
    done = a.cli("freeze", "--why", "x", a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "2 of 2 live mounts have obeyed" in done.out, (done.out, done.err)
    assert b.status()["cluster"]["frozen"]
    a.unmount()
    b.unmount()
    done = run([PROGRAM, "freeze", "--lift", "--remote", cluster.redis.url, "--timeout", "0"], a.env(), 30)
    assert done.code == 1 and "no live mount is listed" in done.out and "the order stands" in done.err, (done.out, done.err)


def test_what_waits_in_a_queue_does_not_undo_a_purge(cluster, pair):
    a, b = pair
    worker = b.worker()
    with suspended(cluster.redis):
        path = artefacts.write_graph(b.cache, "key", "made without the server" * 9).relative_to(b.cache)
        wait_until(lambda: b.status()["catalog"]["queued"] == 1, 20, "the file to be queued")
        os.kill(worker, signal.SIGSTOP)
    try:
        assert a.cli("purge", "--yes", "--all", a.cache, "--timeout", "1").code == 1
    finally:
        time.sleep(21)  # longer than Heartbeat::kPermission; the supervisor may start another worker meanwhile
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
    wait_until(lambda: all(one["purged"] for one in listed(a)), 40, "the mount to obey")
    assert b.status()["catalog"]["queued"] == 0 and not published(cluster)
    disappears(b.cache / path, 5)


def test_a_mount_that_may_only_read_works_and_says_that_it_is_not_listed(cluster, pair):
    a, _ = pair
    cluster.redis.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection", "+info", "+xread", "-@write")
    reader = cluster.node("reader", start=False)
    (reader.root / "password").write_text("secret\n")
    reader.remote = cluster.redis.url.replace("unix://", "unix://reader@")
    reader.start(*cluster.options("--password-file", reader.root / "password"))
    path = artefacts.write_graph(a.cache, "key", "for readers" * 9).relative_to(a.cache)
    a.sync()
    appears(reader.cache / path)
    wait_until(lambda: "mount.not_listed" in reader.log.read_text(), 20, "the log to say it")
    assert str(reader.cache) not in mountpoints(listed(a))
    assert a.cli("freeze", a.cache).code == 0
    disappears(reader.cache / path, FREEZES_WITHIN)
    assert a.cli("freeze", "--lift", a.cache).code == 0
    appears(reader.cache / path)
    assert reader.log.read_text().count("mount.not_listed") == 1


def test_mounts_and_an_operator_need_no_more_rights_than_acl_prints(cluster):
    url = {}
    for role in ("publisher", "sweeper", "consumer", "operator"):
        cluster.redis.command(*run([PROGRAM, "acl", role]).out.split())
        cluster.redis.command("ACL", "SETUSER", f"inductorfs-{role}", "nopass")
        url[role] = cluster.redis.url.replace("unix://", f"unix://inductorfs-{role}@")
    writer, sweeper = cluster.node("writer", remote=url["publisher"], options=cluster.options()), cluster.node("sweeper", remote=url["sweeper"], options=cluster.options())
    reader = cluster.node("reader", remote=url["consumer"], options=(*cluster.options(), "--read-only"))
    share(writer, reader, "first")
    path = share(sweeper, reader, "second")
    operator = ("--remote", url["operator"])
    wait_until(lambda: {str(writer.cache), str(sweeper.cache)} <= mountpoints(listed(writer, *operator)), 20, "both to be listed")
    archive = cluster.directory / "archive"
    for words, comes in ((("export", archive, "--remote", url["consumer"]), appears), (("purge", "--all", "--yes", *operator), disappears),
                         (("import", archive, "--remote", url["publisher"]), appears)):
        done = run([PROGRAM, *words], writer.env(), 60)
        assert done.code == 0, (words, done)
        comes(reader.cache / path)
    refused = run([PROGRAM, "freeze", writer.cache], writer.env(), 30)
    assert refused.code == 1 and "NOPERM" in refused.err, refused
    for node in (writer, sweeper, reader):
        node.unmount()
    denied = {entry[7] for entry in cluster.redis.command("ACL", "LOG")}
    assert {key for key in denied if not key.endswith(b":sweep")} == {b"ifs1:{nodes}:orders"}, denied

# SPDX-License-Identifier: Apache-2.0
"""`--no-publish` and `--read-only`: what jobs write stays here, and a read-only mount sends the server no command that writes."""
import json
import time

import pytest
from inductorfs_testing import artefacts, mounts, places
from inductorfs_testing.processes import run

PROGRAM = places.program()
NO_PUBLISH = "this mount publishes nothing (--no-publish)"
READ_ONLY = "this mount publishes nothing (--read-only)"
# What a mount may send that is of no category of commands that write.
READS = {"get", "getrange", "exists", "hget", "hmget", "hgetall", "hscan", "hlen", "strlen", "pttl", "type", "xread", "xrange", "xrevrange", "xlen", "zrange",
         "touch", "info", "client|setname", "auth", "hello", "select", "ping", "role"}


def sent(redis):
    """{command: calls} since CONFIG RESETSTAT; without the test's own."""
    lines = redis.command("INFO", "commandstats").decode().splitlines()
    found = {line.split(":")[0].removeprefix("cmdstat_"): int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_")}
    return {name: calls for name, calls in found.items() if not name.startswith(("config|", "acl|", "scan"))}


def problems(node):
    return [line for line in node.log.read_text().splitlines() if " warning " in line or " error " in line]


def published_by(writer, content="of the writer"):
    name = artefacts.write_graph(writer.cache, "shared", content).relative_to(writer.cache)
    writer.sync()
    return name


def kept(node, why):
    """Writes something, and asks `sync`, `explain` and `status` what became of it."""
    own = artefacts.write_graph(node.cache, "own", "of this mount")
    done = node.cli("sync", node.cache, "--json")
    report = json.loads(done.out)
    assert (done.code, report["published"], report["kept"], report["why"]) == (3, 0, 1, [why]), (done.out, done.err)
    assert done.err == f"inductorfs: nothing that was written is shared: {node.cache}: {why}\n"
    assert f"kept local: {why}" in node.cli("explain", own).out
    assert own.read_bytes() == b"of this mount"
    return own


def test_a_mount_that_publishes_nothing_reads_as_usual(cluster):
    writer, reader = cluster.quick("writer"), cluster.quick("reader", "--no-publish")
    name = published_by(writer)
    assert mounts.appears(reader.cache / name).read_bytes() == b"of the writer"
    before = mounts.published(cluster)
    own = kept(reader, NO_PUBLISH)
    assert mounts.published(cluster) == before
    assert not (writer.cache / own.relative_to(reader.cache)).exists()
    status = reader.status()
    assert (status["remote"]["publishes"], status["remote"]["read_only"], status["catalog"]["queued"]) == (False, False, 0)
    assert "--no-publish: what jobs write stays here" in reader.cli("status", reader.cache).out
    assert f'inductorfs_remote_publishes{{mountpoint="{reader.cache}"}} 0' in reader.cli("metrics").out
    assert f'inductorfs_remote_publishes{{mountpoint="{writer.cache}"}} 1' in reader.cli("metrics").out


@pytest.mark.parametrize(("option", "why"), [("--no-publish", NO_PUBLISH), ("--read-only", READ_ONLY)])
def test_it_goes_on_over_an_upgrade(cluster, option, why):
    node = cluster.quick("a", option)
    assert node.cli("upgrade", node.cache).code == 0
    kept(node, why)
    assert mounts.published(cluster) == []


def test_a_read_only_mount_sends_nothing_that_writes(cluster, place):
    writer = cluster.quick("writer")
    name = published_by(writer)
    writer.unmount()
    cluster.redis.command("CONFIG", "RESETSTAT")
    reader = place.start(*cluster.options("--read-only"))
    assert mounts.appears(reader.cache / name).read_bytes() == b"of the writer"
    kept(reader, READ_ONLY)
    (lost,) = cluster.redis.keys("*:b:*")  # an entry whose bytes have gone is not reported by this mount
    reader.unmount()
    cluster.redis.command("DEL", lost)
    cluster.redis.command("CONFIG", "RESETSTAT")
    other = cluster.quick("other", "--read-only")
    assert not (other.cache / name).exists()
    other.cli("sync", other.cache)
    time.sleep(2)  # the catalog's threads have had their turns
    commands = sent(cluster.redis)
    assert commands.get("xread", 0) > 0 and set(commands) <= READS, commands
    assert other.status()["remote"]["read_only"] is True
    assert problems(other) == []


def test_rights_to_read_are_enough_for_a_read_only_mount(cluster, place):
    writer = cluster.quick("writer")
    name = published_by(writer)
    cluster.redis.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@read")
    password = place.root / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    words = [PROGRAM, "mount", place.cache, "--store", place.store, "--log", place.log, "--password-file", password,
             "--remote", cluster.redis.url.replace("unix://", "unix://reader@"), *cluster.options()]
    refused = run(words, place.env(), seconds=30)
    assert refused.code == 0 and "the remote refuses this mount" in refused.err and "NOPERM" in refused.err, refused.err
    place.unmount()
    refused = run([*words, "--require-remote"], place.env(), seconds=30)
    assert refused.code == 2 and "NOPERM" in refused.err, refused.err
    place.log.unlink()  # it names the refusal
    done = run([*words, "--read-only"], place.env(), seconds=30)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert mounts.appears(place.cache / name).read_bytes() == b"of the writer"
    kept(place, READ_ONLY)
    later = artefacts.write_graph(writer.cache, "later", "news").relative_to(writer.cache)
    writer.sync()
    assert mounts.appears(place.cache / later).read_bytes() == b"news"
    status = place.status()
    assert status["remote"]["reachable"] is True and status["warnings"] == [], status["remote"]
    assert problems(place) == []
    assert "reachable; --read-only: this mount changes nothing there" in place.cli("status", place.cache).out
    place.unmount()


def test_it_orders_nothing(cluster):
    writer, reader = cluster.quick("writer"), cluster.quick("reader", "--read-only")
    name = published_by(writer)
    mounts.appears(reader.cache / name)
    before, orders = mounts.published(cluster), ("GET", "ifs1:{nodes}:orders")
    for words in (("freeze", "--why", "x"), ("freeze", "--lift"), ("purge", "--all", "--yes")):
        done = reader.cli(*words, reader.cache, "--timeout", "0")
        assert done.code == 2 and done.err.count("\n") == 1, (words, done.out, done.err)
        assert "is --read-only" in done.err and "with --remote URL instead" in done.err, done.err
    assert mounts.published(cluster) == before and cluster.redis.command(*orders) is None
    counted = reader.cli("purge", "--all", reader.cache)
    assert counted.code == 0 and "1 of 1 entries" in counted.out, (counted.out, counted.err)


def test_read_only_without_a_remote_is_refused(place):
    done = run([PROGRAM, "mount", place.cache, "--store", place.store, "--read-only"], place.env(), seconds=30)
    assert done.code == 2 and done.err == ("inductorfs: --read-only without --remote: there is no cluster to read; give its URL with --remote, "
                                           "or leave --read-only out for a local mount\n")
    shown = run([PROGRAM, "config", "show", "--origin"], {**place.env(), "INDUCTORFS_READ_ONLY": "true", "INDUCTORFS_REMOTE": "redis://h"}, seconds=30)
    assert "read-only = true  # variable INDUCTORFS_READ_ONLY" in shown.out

# SPDX-License-Identifier: Apache-2.0
"""Start lists: a node fetches with a job's first name what an earlier start of the same job asked for, and nothing of other jobs."""
import hashlib
import json
import os
import subprocess
import sys

from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears, suspended
from inductorfs_testing.processes import wait_until

KEYS = 16
# What the artefacts of a job have in common.
COMMON = "".join(hashlib.sha256(f"{line}".encode()).hexdigest() for line in range(60))
# A job: it asks for graphs as torch does, compiles what is not there, and reads what is.
JOB = """
import os, sys
from inductorfs_testing import artefacts
cache, name, first, keys = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for number in range(first, keys):
    path = artefacts.graph(f"{name} {number}", artefacts_content := sys.argv[5] + f"{name} {number} " * 50)
    directory = os.path.join(cache, os.path.dirname(path))
    try:
        found = os.listdir(directory)
    except FileNotFoundError:
        found = []
    if found:
        assert open(os.path.join(directory, found[0])).read() == artefacts_content
    else:
        artefacts.write_graph(cache, f"{name} {number}", artefacts_content)
print(flush=True)
sys.stdin.read()
"""


def is_known(node):
    """A program that ends before anybody has looked at it is no job, and has no list."""
    jobs = json.loads(node.cli("jobs", node.cache, "--json").out)["jobs"]
    return any(one["job"].startswith("process ") and not one["ended"] for one in jobs)


def job(node, name, first=0, keys=KEYS):
    support = os.path.dirname(os.path.dirname(os.path.abspath(artefacts.__file__)))
    words = [sys.executable, "-c", JOB, node.cache, name, str(first), str(keys), COMMON]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": support}) as process:
        process.stdout.readline()
        if process.poll() is None:
            wait_until(lambda: is_known(node), 20, "the job to be known")
        process.stdin.close()
    assert process.returncode == 0


def starts(node):
    return json.loads(node.cli("stats", node.cache, "--json").out)["starts"]


def published(node, lists):
    wait_until(lambda: starts(node)["published"] == lists, 30, "the list of a job that has ended")
    node.sync()


def graph_of(name, number):
    return artefacts.graph(f"{name} {number}", COMMON + f"{name} {number} " * 50)


def test_a_node_gets_the_whole_set_with_the_first_name(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")  # b is there before the artefacts: nothing of them comes by itself
    for count, name in enumerate(("other", "mine"), 1):
        job(a, name)
        published(a, count)
    wait_until(lambda: b.status()["catalog"]["entries"] == a.status()["catalog"]["entries"], 20, "the entries")
    before = b.counters().get("fetch.blobs", 0)
    assert before == 0
    job(b, "mine", keys=1)
    told = wait_until(lambda: (now := starts(b))["foreseen"] and now, 10, "the list to be used")
    assert told["lists"] == 1 and KEYS - 1 <= told["foreseen"] <= KEYS
    wait_until(lambda: b.counters()["fetch.blobs"] >= KEYS + 1, 10, "all that the list names")
    with suspended(cluster.redis):
        job(b, "mine")
    assert b.counters()["fetch.blobs"] == KEYS + 1, "with the list itself, and nothing of the other job"
    told = wait_until(lambda: (now := starts(b))["used"] == now["foreseen"] and now, 10, "all that was foreseen to count as used")
    assert told["used_bytes"] == told["foreseen_bytes"]
    assert f"{told['used']} of them were used, and 0 B were not" in b.cli("stats", b.cache).out


def test_a_list_follows_what_a_job_asks_for(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    job(a, "mine")
    published(a, 1)
    wait_until(lambda: b.status()["catalog"]["entries"] == a.status()["catalog"]["entries"], 20, "the entries")
    job(b, "mine", keys=KEYS + 4)
    published(b, 1)
    c = cluster.quick("c", "--prefetch", "0")
    wait_until(lambda: c.status()["catalog"]["entries"] == b.status()["catalog"]["entries"], 20, "the entries")
    assert starts(c) == dict.fromkeys(starts(c), 0), "--prefetch 0 foresees nothing"
    d = cluster.quick("d", "--no-publish", "--prefetch", "64M")
    job(d, "mine", keys=1)
    assert starts(d)["published"] == 0


def test_no_program_sees_one(cluster):
    a = cluster.quick("a")
    job(a, "mine")
    published(a, 1)
    b = cluster.quick("b")
    appears(b.cache / graph_of("mine", 0))
    catalog = wait_until(lambda: (now := b.status()["catalog"])["start_lists"] and now, 10, "the list")
    assert catalog["hidden"] == 0
    assert ".starts" not in os.listdir(b.cache) and not (b.cache / ".starts").exists()
    forged = b.cache / ".starts" / ("0" * 64)
    artefacts.write_atomic(b.cache, str(forged.relative_to(b.cache)), "inductorfs-starts-v1\n")
    b.sync()
    assert starts(b)["published"] == 0 and forged.read_text() == "inductorfs-starts-v1\n"
    c = cluster.quick("c")
    appears(c.cache / graph_of("mine", 0))
    assert not (c.cache / ".starts").exists()


def bytes_of_blobs(cluster):
    return sum(cluster.redis.size_of(key) for key in cluster.redis.keys("ifs1:b:*"))


def test_what_a_start_asked_for_takes_little_of_the_server(cluster):
    a = cluster.quick("a")
    job(a, "mine")
    a.sync()
    before = bytes_of_blobs(cluster)
    published(a, 1)
    wait_until(lambda: a.counters().get("remote.gathered_blobs") == KEYS, 20, "the artefacts to be gathered")
    assert bytes_of_blobs(cluster) < before / 3
    wait_until(lambda: "catalog.gathered" in a.log.read_text(), 10, "the log to say so")
    b = cluster.quick("b", "--prefetch", "0")
    wait_until(lambda: b.status()["catalog"]["entries"] == a.status()["catalog"]["entries"], 20, "the entries")
    job(b, "mine")  # it compares
    counters = b.counters()
    assert counters["remote.fetch_blocks"] == 1 and counters.get("lookup.lost", 0) == 0
    assert b.status()["catalog"]["queued"] == 0, "nothing was compiled"

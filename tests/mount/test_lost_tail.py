# SPDX-License-Identifier: Apache-2.0
"""A server that comes back without the last of what it acknowledged, just beyond what the hosts had read: no history shows it. With the
poll interval as it is by default, in which much is published and not read back yet."""
import os

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import QuickCluster, appears
from inductorfs_testing.processes import wait_until

LOST = 6  # artefacts


@pytest.fixture
def cluster():
    with QuickCluster(redis_settings=("--appendfsync", "no")) as made:
        yield made


def by_default(cluster):
    options = [str(one) for one in cluster.options()]
    at = options.index("--poll-interval")
    return options[:at] + options[at + 2:]


def log_of(redis):
    return next(path for path in (redis.directory / "appendonlydir").iterdir() if "incr" in path.name)


def in_cluster(redis):
    return {name.decode() for key in redis.keys("*:idx") for name in redis.command("HKEYS", key)}


def publish(node, name):
    path = artefacts.write_graph(node.cache, name, f"value of {name}")
    return str(path.relative_to(node.cache))


@pytest.mark.parametrize("killed", [False, True], ids=["the same worker", "another worker"])
def test_what_a_server_lost_just_beyond_what_was_read_is_published_again(cluster, killed):
    a, b = (cluster.node(name, options=by_default(cluster)) for name in "ab")
    known = [publish(a, f"known{number}") for number in range(3)]
    a.sync()
    for name in known:
        appears(b.cache / name)
    names = []
    for number in range(4 + LOST):
        if number == 4:
            size = log_of(cluster.redis).stat().st_size
        names.append(publish(a, f"new{number}"))
        wait_until(lambda: names[-1] in in_cluster(cluster.redis), what="a publish")
    cluster.redis.kill()
    os.truncate(log_of(cluster.redis), size)
    if killed:
        a.kill_worker()
    cluster.redis.start()
    assert len(in_cluster(cluster.redis)) <= len(known) + 4, "nothing was lost"
    a.sync()
    assert in_cluster(cluster.redis) >= {*known, *names}
    for name in known + names:
        assert appears(b.cache / name).read_bytes() == (a.cache / name).read_bytes()

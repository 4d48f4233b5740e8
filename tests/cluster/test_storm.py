# SPDX-License-Identifier: Apache-2.0
"""One storm over all processes, for each arrangement of servers: two nodes whose disks are full and freed, whose workers and daemons
are killed, mounted again and upgraded between two programs, while the server restarts, hangs, loses its data or fails over. What
`sync` acknowledges is in the cluster at that moment, and right on both nodes at each settled point; no mount fails to come back.
INDUCTORFS_CHAOS_SECONDS: how long each lasts (else one deck of steps). INDUCTORFS_CHAOS_SEED: repeats the steps of a run."""
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.chaos import scratch
from inductorfs_testing.network import NetworkCluster
from inductorfs_testing.processes import Failed, wait_until
from inductorfs_testing.redis_cluster import RedisCluster
from inductorfs_testing.sentinel import SentinelGroup
from inductorfs_testing.storm import Storm

LONG = os.environ.get("INDUCTORFS_CHAOS_SECONDS")
SECONDS = float(LONG or 0)
SEED = int(os.environ.get("INDUCTORFS_CHAOS_SEED", random.randrange(1_000_000) if LONG else 1))


class OneServer:
    """Keeps what it was given, over a kill too."""
    settings = ("--appendfsync", "no")
    url = None

    def __init__(self, cluster):
        self.redis = cluster.redis
        self.faults = [self.restart, self.stop, self.hang]

    def restart(self, _storm):
        self.redis.kill()
        self.redis.start()

    def stop(self, _storm):
        self.redis.kill()
        return self.redis.start

    def hang(self, _storm):
        self.redis.suspend()
        return self.redis.resume

    def answers(self):
        return False

    def in_step(self):
        return True

    def index(self):
        return index_of([self.redis])

    def close(self):
        pass


class Forgetful(OneServer):
    """Without persistence: each start is an empty one."""
    settings = ("--appendonly", "no")

    def restart(self, storm):
        storm.lose()
        super().restart(storm)

    def stop(self, storm):
        storm.lose()
        return super().stop(storm)


class Sentinels:
    """A master, a replica and three Sentinels, which promote only when they are asked."""
    settings = ()

    def __init__(self, cluster):
        self.group = SentinelGroup(cluster.network.address, cluster.network.free_port, down_after=600).start()
        self.url = self.group.url
        self.faults = [self.planned_failover, self.failover, self.hang]

    def planned_failover(self, storm):
        """The old master goes on answering for some seconds."""
        wait_until(self.in_step, 180, "the replica")  # a Sentinel of a busy machine rests for 30 s (TILT)
        storm.lose()
        self.group.fail_over(self.group.master())

    def failover(self, storm):
        wait_until(self.in_step, 180, "the replica")  # a Sentinel of a busy machine rests for 30 s (TILT)
        storm.lose()
        old = self.group.master()
        old.kill()
        self.group.fail_over(old)
        old.start()

    def hang(self, _storm):
        master = self.group.master()
        master.suspend()
        return master.resume

    def answers(self):
        return False

    def in_step(self):
        return self.group.in_step()

    def index(self):
        return index_of([self.group.master()])

    def close(self):
        self.group.close()


class Shards:
    """A Redis Cluster."""
    settings = ()

    def __init__(self, cluster):
        self.group = RedisCluster(cluster.network.address, cluster.network.free_port).start()
        self.url = self.group.url
        self.faults = [self.planned_failover, self.failover, self.stop]

    def _chosen(self, storm):
        wait_until(self.in_step, 60, "the cluster")
        storm.lose()
        return storm.random.choice(sorted(self.group.masters(), key=lambda server: server.port))

    def planned_failover(self, storm):
        old = self._chosen(storm)
        replica = next(server for server in self.group.servers if server.section("INFO", "replication").get("master_port") == str(old.port))
        begin = time.monotonic()
        asked = 0

        def promoted():  # a replica gives up after five seconds, on a busy machine in vain
            nonlocal asked
            if time.monotonic() >= begin + 6 * asked and replica.section("INFO", "replication")["role"] == "slave":
                asked += 1
                replica.command("CLUSTER", "FAILOVER")
            return old not in self.group.masters()

        wait_until(promoted, 60, "the planned failover", pause=0.1)
        self.group.wait_for_replacement(old)
        wait_until(self.group._agree, 20, "all nodes to agree")

    def failover(self, storm):
        old = self._chosen(storm)
        old.kill()
        self.group.wait_for_replacement(old)
        old.start()

    def stop(self, storm):
        """Until its replica has its place."""
        old = self._chosen(storm)
        old.kill()
        return lambda: self.group.wait_for_replacement(old) and old.start()

    def answers(self):
        return True  # two shards of three, or the promoted one

    def in_step(self):
        return self.group.in_step()

    def index(self):
        return index_of(self.group.masters())

    def close(self):
        self.group.close()


def index_of(servers):
    return {name.decode() for server in servers for key in server.keys("*:idx") for name in server.command("HKEYS", key)}


def two_programs(directory: Path):
    """The one under test, and another: INDUCTORFS_OTHER_PROGRAM, or a copy with bytes of its own. The supervisor is looked for beside each."""
    made = []
    for number, source in enumerate([places.program(), Path(os.environ.get("INDUCTORFS_OTHER_PROGRAM") or places.program())]):
        place = directory / f"program {number}"
        place.mkdir()
        for name in (source, source.with_name("inductorfs-supervisor")):
            shutil.copy2(name, place / name.name)
        made.append(place / source.name)
    with open(made[1], "ab") as file:
        file.write(b"another one")
    return made


@pytest.mark.parametrize("kind", [OneServer, Forgetful, Sentinels, Shards])
def test_everything_happens_to_two_nodes(kind):
    print(f"\nINDUCTORFS_CHAOS_SEED={SEED}", flush=True)
    with NetworkCluster(kind.settings, parent=scratch()) as cluster:
        servers = kind(cluster)
        storm = Storm(cluster, servers, SEED, two_programs(cluster.directory))
        try:
            print(storm.start().run(SECONDS), flush=True)
        finally:
            if storm.heal:
                storm.heal()
            storm.close()
            servers.close()

# SPDX-License-Identifier: Apache-2.0
"""A Redis Cluster as an operator runs it: three masters that share the slots, each with a replica."""
import time

from .processes import Failed, wait_until
from .redis_server import RedisServer

MASTERS = 3
SLOTS = 16384
NODE_TIMEOUT = 1.5  # seconds of silence until a master's replica takes its place


def slot_of(key: bytes):
    """As the cluster specification has it: CRC16 of the hash tag, or of the key."""
    opened = key.find(b"{")
    closed = key.find(b"}", opened + 1) if opened >= 0 else -1
    if closed > opened + 1:
        key = key[opened + 1:closed]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc % SLOTS


class ClusterServer(RedisServer):
    def __init__(self, address, port, bus_port, node_timeout):
        super().__init__(settings=("--port", port, "--bind", address, "--protected-mode", "no", "--appendfsync", "no",
                                   "--cluster-enabled", "yes", "--cluster-port", bus_port,
                                   "--cluster-node-timeout", int(node_timeout * 1000),
                                   "--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no",
                                   "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
                                   "--repl-backlog-size", "64mb"))
        self.address, self.port, self.bus_port, self.id = address, port, bus_port, None

    def section(self, *words):
        return dict(line.split(":", 1) for line in self.command(*words).decode().split("\r\n") if ":" in line)


class RedisCluster:
    """start() returns when all six know each other and the replicas follow; close() ends them."""

    def __init__(self, address, free_port, node_timeout=NODE_TIMEOUT):
        self.address = address
        self.servers = [ClusterServer(address, free_port(), free_port(), node_timeout) for _ in range(2 * MASTERS)]

    @property
    def url(self):
        return "redis+cluster://" + ",".join(f"{self.address}:{server.port}" for server in self.servers)

    def start(self):
        try:
            for server in self.servers:
                server.start()
                server.id = server.command("CLUSTER", "MYID").decode()
            first, *others = self.servers
            for index, server in enumerate(self.servers[:MASTERS]):
                server.command("CLUSTER", "ADDSLOTSRANGE", SLOTS * index // MASTERS, SLOTS * (index + 1) // MASTERS - 1)
                server.command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            for server in others:
                server.command("CLUSTER", "MEET", first.address, first.port, first.bus_port)
            wait_until(lambda: all(self._knows_all(server) for server in self.servers), 60, "the nodes of the cluster")
            for index, server in enumerate(self.servers[MASTERS:]):
                server.command("CLUSTER", "REPLICATE", self.servers[index].id)
            wait_until(self.in_step, 60, "the cluster")
        except BaseException:
            self.close()
            raise
        return self

    @staticmethod
    def _knows_all(server):
        told = server.section("CLUSTER", "INFO")
        return told["cluster_known_nodes"] == str(2 * MASTERS) and told["cluster_slots_assigned"] == str(SLOTS)

    def masters(self):
        """Those that serve slots now, by what the running ones say."""
        votes = {}
        running = [server for server in self.servers if server.running]
        for server in running:
            try:
                named = {item[2][2].decode() for item in server.command("CLUSTER", "SLOTS")}
            except (OSError, Failed):
                continue
            for name in named:
                votes[name] = votes.get(name, 0) + 1
        return [server for server in self.servers if votes.get(server.id, 0) * 2 > len(running)]

    def owner(self, slot):
        for server in self.servers:
            if not server.running:
                continue
            for first, last, master, *_ in server.command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(one for one in self.servers if one.id == master[2].decode())
        raise Failed(f"nobody serves slot {slot}")

    def in_step(self):
        """All are well, and every replica has nearly all that its master has."""
        try:
            for server in self.servers:
                if not server.running or server.section("CLUSTER", "INFO")["cluster_state"] != "ok":
                    return False
                if b"fail" in server.command("CLUSTER", "NODES"):
                    return False
                told = server.section("INFO", "replication")
                if told["role"] == "slave" and told["master_link_status"] != "up":
                    return False
            return len(self.masters()) == MASTERS
        except (OSError, Failed):
            return False

    def wait_for_replacement(self, old, seconds=60):
        """The masters after another server has taken the place of `old`, which is dead or hangs."""
        def replaced():
            now = [server for server in self.masters() if server is not old]
            return len(now) == MASTERS and now
        return wait_until(replaced, seconds, "the failover", pause=0.1)

    def move(self, slot, to):
        """Moves a slot with its keys, as `redis-cli --cluster reshard` does."""
        source = self.owner(slot)
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.command("MIGRATE", to.address, to.port, "", 0, 10_000, "KEYS", *keys)
        for server in (to, source, *[one for one in self.masters() if one not in (to, source)]):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        # A slot that goes on before all have heard of the new owner's epoch may fall back to the old one, without its keys.
        wait_until(self._agree, 20, "all nodes to agree")

    def _agree(self):
        """The running nodes say the same of the epoch and the slots of all."""
        views = {tuple(sorted(" ".join([line.split()[0], *line.split()[6:]])
                              for line in server.command("CLUSTER", "NODES").decode().splitlines()))
                 for server in self.servers if server.running}
        return len(views) == 1

    def keys(self, pattern="*"):
        return sorted(key for server in self.masters() for key in server.keys(pattern))

    def strike(self, chaos):
        """A fault of a storm (chaos.py): a master is killed or hangs until its replica has taken its place. What it had not
        passed on by then is lost."""
        if not self.in_step():
            return lambda: None
        old, how = chaos.random.choice(self.masters()), chaos.random.choice(["kill", "suspend"])
        chaos.say(f"{how} a master")
        begin = time.monotonic() - 1
        (old.kill if how == "kill" else old.suspend)()

        def heal():
            if how == "kill":
                self.wait_for_replacement(old)
                chaos.unsafe.append((begin, time.monotonic() + 1))
                old.start()
            else:
                # One that hangs answers no question; the others are asked.
                wait_until(lambda: self._has_failed(old), 60, "the failover")
                old.resume()
            wait_until(self.in_step, 60, "the old master to follow the new one")
            if how == "suspend":  # until it knows, it takes what it will lose
                chaos.unsafe.append((begin, time.monotonic()))
            chaos.say("failed over")
        return heal

    def _has_failed(self, old):
        asked = next(server for server in self.servers if server is not old)
        return all(item[2][2].decode() != old.id for item in asked.command("CLUSTER", "SLOTS"))

    def close(self):
        for server in self.servers:
            server.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

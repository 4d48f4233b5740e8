# SPDX-License-Identifier: Apache-2.0
"""A master with a replica and three Sentinels, as a cluster operator runs them: each a process of its own with a configuration
file that it rewrites."""
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .certificates import Authority
from .processes import Failed, wait_until
from .redis_server import RedisServer

MASTER = "inductor"
DOWN_AFTER = 1.0  # seconds until the Sentinels promote the replica by themselves
FAILOVER_TIMEOUT = 6


def ports(port, tls):
    """Lines of a configuration: plain, or nothing but TLS when `tls` is (CA file, certificate, key)."""
    if tls is None:
        return [f"port {port}"]
    ca_file, certificate, key = tls
    return ["port 0", f"tls-port {port}", f"tls-ca-cert-file {ca_file}", f"tls-cert-file {certificate}", f"tls-key-file {key}",
            "tls-auth-clients no", "tls-replication yes"]


class ConfiguredServer(RedisServer):
    """Its role survives a restart: Sentinel has it rewrite its configuration."""

    def __init__(self, address, port, replica_of=None, tls=None):
        super().__init__()
        self.address, self.port = address, port
        lines = [*ports(port, tls), f"bind {address}", f"unixsocket {self.socket}", f"dir {self.directory}", 'save ""',
                 "appendonly yes", "appendfsync no", f"logfile {self.directory}/redis.log", "protected-mode no",
                 "repl-diskless-sync-delay 0", "repl-backlog-size 64mb"]
        if replica_of:
            lines.append(f"replicaof {replica_of.address} {replica_of.port}")
        configuration = self.directory / "redis.conf"
        configuration.write_text("\n".join(lines) + "\n")
        self._arguments = [configuration]

    def replication(self):
        text = self.command("INFO", "replication").decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


class SentinelGroup:
    """start() returns when the Sentinels know of the replica and of each other; close() ends all. `url` is what a mount gets. `tls`:
    nobody speaks anything else, Sentinels and servers among each other neither; `ca_file` is their authority's. On a busy machine
    a master that lives may not answer for DOWN_AFTER: who must know of every failover gives more, and calls fail_over()."""

    def __init__(self, address, free_port, tls=False, down_after=DOWN_AFTER):
        self.address, self._down_after = address, down_after
        self._directory = Path(tempfile.mkdtemp(prefix="inductorfs-sentinel-"))
        self.ca_file, self._tls = None, None
        if tls:
            authority = Authority(self._directory / "certificates")
            self.ca_file = authority.ca_file
            self._tls = (self.ca_file, *authority.sign("server", f"IP:{address}"))
        self.servers = [ConfiguredServer(address, free_port(), tls=self._tls)]
        self.servers.append(ConfiguredServer(address, free_port(), self.servers[0], tls=self._tls))
        self._ports = [free_port() for _ in range(3)]
        self._children = []

    @property
    def url(self):
        scheme = "rediss+sentinel://" if self._tls else "redis+sentinel://"
        return scheme + ",".join(f"{self.address}:{port}" for port in self._ports) + f"/{MASTER}"

    def start(self):
        try:
            for server in self.servers:
                server.start()
            for port in self._ports:
                self._start_sentinel(port)
            try:  # they ask the master for its replicas every ten seconds
                wait_until(lambda: all(self._knows_all(port) for port in self._ports), 60, "the Sentinels")
            except Failed as failed:
                raise Failed(f"{failed}: they say {[self._facts(port) for port in self._ports]}") from None
            wait_until(self.in_step, 30, "the replica")
        except BaseException:
            self.close()
            raise
        return self

    def _start_sentinel(self, port):
        directory = self._directory / str(port)
        directory.mkdir()
        configuration = directory / "sentinel.conf"
        lines = "\n".join(ports(port, self._tls))
        configuration.write_text(f"""{lines}
bind {self.address}
dir {directory}
logfile {directory}/sentinel.log
protected-mode no
sentinel monitor {MASTER} {self.address} {self.servers[0].port} 2
sentinel down-after-milliseconds {MASTER} {int(self._down_after * 1000)}
sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT * 1000}
""")
        program = shutil.which("redis-server")
        self._children.append(subprocess.Popen([program, configuration, "--sentinel"], stdin=subprocess.DEVNULL,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def ask(self, port, *words):
        tls = ["--tls", "--cacert", str(self.ca_file)] if self._tls else []
        done = subprocess.run(["redis-cli", "-h", self.address, "-p", str(port), *tls, *map(str, words)], capture_output=True,
                              text=True, timeout=20, check=False)
        return done.stdout.split("\n")

    def _facts(self, port):
        told = self.ask(port, "SENTINEL", "MASTER", MASTER)
        return dict(zip(told[::2], told[1::2]))

    def _knows_all(self, port):
        facts = self._facts(port)
        return facts.get("num-slaves") == "1" and facts.get("num-other-sentinels") == "2" and facts.get("flags") == "master"

    def master(self):
        """The server that the Sentinels name."""
        ports = [self.ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1:2] for port in self._ports]
        named = [server for server in self.servers if ports.count([str(server.port)]) >= 2]
        return named[0] if named else None

    def in_step(self):
        """The replica has all that the master has, and Sentinel could promote it."""
        master = self.master()
        if master is None or not master.running:
            return False
        replica = next(server for server in self.servers if server is not master)
        if not replica.running:
            return False
        try:
            top, low = master.replication(), replica.replication()
        except (OSError, Failed):
            return False
        return top["role"] == "master" and low["role"] == "slave" and low["master_link_status"] == "up" and \
            int(low["slave_repl_offset"]) >= int(top["master_repl_offset"]) - 2_000_000

    def fail_over(self, old, seconds=90):
        """Has the replica of `old`, which does not answer, promoted, as an operator does who cannot wait. The new master."""
        asked = -FAILOVER_TIMEOUT

        def promoted():
            nonlocal asked
            if time.monotonic() > asked + FAILOVER_TIMEOUT:  # one that came to nothing is over then
                asked = time.monotonic()
                self.ask(self._ports[0], "SENTINEL", "FAILOVER", MASTER)
            return (now := self.master()) is not old and now

        return wait_until(promoted, seconds, "the failover", pause=0.1)

    def wait_for_other_master(self, old, seconds=40):
        return wait_until(lambda: (now := self.master()) is not old and now, seconds, "the failover", pause=0.1)

    def close(self):
        for child in self._children:
            child.send_signal(signal.SIGKILL)
            child.wait(10)
        for server in self.servers:
            server.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

# SPDX-License-Identifier: Apache-2.0
"""Nodes whose daemons live in network namespaces of their own, on a bridge with a Redis: links can be cut. Root only."""
import itertools
import os
import random
import subprocess

from .fixtures import lack
from .mounts import QuickCluster
from .node import Node
from .ports import free_port
from .processes import run
from . import places


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, timeout=20)


def nft(text):
    subprocess.run(["nft", text], check=True, capture_output=True, timeout=20)


class Network:
    """A bridge with an address, and namespaces on it. close() removes all of it, whatever state it is in."""
    _numbers = itertools.count()

    def __init__(self):
        # What the one before it had goes with its namespaces, later: no name comes twice.
        self.name = f"ifs{os.getpid() % 0xffff:x}{next(Network._numbers):x}"
        self.prefix = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
        self.address = f"{self.prefix}.1"
        self._hosts, self._firewall = [], False
        try:
            # An address of its own: else it is the lowest of its ports', changes with each, and all ARP tables are stale.
            mac = "02:" + ":".join(f"{random.randrange(256):02x}" for _ in range(5))
            ip("link", "add", self.name, "address", mac, "type", "bridge")
            ip("address", "add", f"{self.address}/24", "dev", self.name)
            ip("link", "set", self.name, "up")
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            self.close()
            lack(f"no bridge can be made here: {getattr(error, 'stderr', error)}")

    def free_port(self):
        return free_port(self.address)

    def add(self):
        """A new namespace with a link to the bridge; its name."""
        number = len(self._hosts)
        host, link = f"{self.name}n{number}", f"{self.name}v{number}"
        self._hosts.append(host)
        ip("netns", "add", host)
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("link", "set", link, "master", self.name, "up")
        ip("-n", host, "link", "set", "lo", "up")
        ip("-n", host, "address", "add", f"{self.prefix}.{number + 2}/24", "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")
        return host

    def address_of(self, host):
        return f"{self.prefix}.{self._hosts.index(host) + 2}"

    def drop(self, host):
        """What comes from it is dropped without a word, as a firewall does."""
        self._need_firewall()
        nft(f"add element inet {self.name} dropped {{ {self.address_of(host)} }}")

    def refuse(self, host):
        """Its packets are answered by a RST: connections end, new ones are refused."""
        self._need_firewall()
        nft(f"add element inet {self.name} refused {{ {self.address_of(host)} }}")

    def accept(self, host):
        self._need_firewall()
        for name in ("dropped", "refused"):
            # An element that is not there cannot be deleted: it is added first.
            element = f"element inet {self.name} {name} {{ {self.address_of(host)} }}"
            nft(f"add {element}; delete {element}")

    def _need_firewall(self):
        if self._firewall:
            return
        table = f"inet {self.name}"
        rules = [f"add table {table}", f"add chain {table} input {{ type filter hook input priority 0; }}"]
        for name, verdict in (("dropped", "drop"), ("refused", "reject with tcp reset")):
            rules += [f"add set {table} {name} {{ type ipv4_addr; }}", f"add rule {table} input ip saddr @{name} {verdict}"]
        try:
            nft("; ".join(rules))
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            lack(f"no firewall rule can be made here: {getattr(error, 'stderr', error)}")
        self._firewall = True

    def cut(self, host):
        ip("link", "set", self._link(host), "down")

    def heal(self, host):
        ip("link", "set", self._link(host), "up")

    def _link(self, host):
        return f"{self.name}v{self._hosts.index(host)}"

    def close(self):
        for host in self._hosts:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True, timeout=20)
        subprocess.run(["ip", "link", "delete", self.name], capture_output=True, timeout=20)
        if self._firewall:
            subprocess.run(["nft", f"delete table inet {self.name}"], capture_output=True, timeout=20)


class RemoteNode(Node):
    """A node whose commands run in its network namespace; files are touched from this one, as mounts are not apart."""

    host = None

    def cli(self, *words, seconds=60):
        return run(["nsenter", f"--net=/run/netns/{self.host}", places.program(), *words], self.env(), seconds)


class NetworkCluster(QuickCluster):
    """Redis on the bridge, each node in a namespace of its own. Needs external synchronisation."""

    def __init__(self, redis_settings=(), parent=None):
        if os.geteuid() != 0:
            lack("network namespaces are root's")
        self.network = Network()
        try:
            self.port = self.network.free_port()
            super().__init__(redis_settings=("--port", str(self.port), "--bind", self.network.address,
                                             "--protected-mode", "no", *redis_settings), parent=parent)
        except BaseException:
            self.network.close()
            raise

    def host(self, name, *more, remote=None, start=True):
        """A node, mounted unless start is False. `remote`: another URL than the server's."""
        node = RemoteNode(self.directory / name, remote=remote or f"redis://{self.network.address}:{self.port}/0")
        node.host = self.network.add()
        self._nodes.append(node)
        return node.start(*self.options(*more)) if start else node

    def cut(self, node):
        self.network.cut(node.host)

    def heal(self, node):
        self.network.heal(node.host)

    def close(self):
        super().close()
        self.network.close()

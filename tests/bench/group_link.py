# SPDX-License-Identifier: Apache-2.0
"""How long a node takes to get what others have published, over a link of our own (wire.cc), beside what the same link costs without us.

  prefetched     from when the mount answers until all of it is in the node's store; the mount's start beside it
  first touch    every file is opened and read once in the order of its name, on a node that was mounted before they were published
  bare FUSE      the same of the same files, which lie on the disk, in a FUSE file system with nothing in it: what the kernel's requests take
  one by one     the same with `--prefetch 0`, so that each file is a round trip
  raw            the same frames in one pipeline on one connection, written to one file (raw_fetch.cc)
  PyTorch's way  one by one, each value JSON with the bytes in base64 (torch/_inductor/remote_cache.py), decoded and written to a file each; once

A cell is COUNTxKIB@RTT_MS, or corpus@RTT_MS: what a real job has left. /1 behind it is a link of 1 Gbit/s, else it is 10; +tls is TLS.
"""
import base64
import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from inductorfs_testing import artefacts, compare
from inductorfs_testing.certificates import Authority
from inductorfs_testing.mounts import QuickCluster, blobs, text
from inductorfs_testing.ports import free_port
from inductorfs_testing.processes import wait_until
from sides import BARE, bare_mount
from suite import order
from table import Table
from torch_record import recorded

CELLS = {
    "smoke": "50x1@0",
    "short": "1000x20@0.64,200x20@0.64+tls,100x1@5,50x200@0.64/1,corpus@0.64",
    "full": "1000x20@0,1000x20@0.1,1000x20@0.64,1000x20@5,200x20@40,1000x20@0.64/1,1000x20@0.64+tls,1000x1@0.64,1000x200@0.64,20000x20@0.64,corpus@0.64",
}
CELL = re.compile(r"(?:(\d+)x(\d+)|corpus)@([\d.]+)(?:/([\d.]+))?(\+tls)?")
AIMED = re.compile(r"\d+x20@0\.64")
AIMS = {"prefetched": 1.5, "first touch": 2.0, "one by one": 2.0}
KEY = b"torch:%d"
PREFETCH = 8 << 30
# Files: above that nothing is read one by one, which takes as long for each as for a few, and the bare FUSE file system holds a descriptor for
# each name that the kernel knows.
MANY = 10_000


@dataclass
class Cell:
    """count is 0 for the corpus."""
    text: str
    count: int
    size: int
    trip: float
    gigabits: float
    tls: bool

    @classmethod
    def parse(cls, text):
        match = CELL.fullmatch(text)
        if not match:
            raise SystemExit(f"bench: {text} is no cell: COUNTxKIB@RTT_MS[/GBITS][+tls], or corpus@...")
        count, size, trip, gigabits, tls = match.groups()
        return cls(text, int(count or 0), int(size or 0), float(trip), float(gigabits or 10), tls is not None)

    @property
    def name(self):
        what = f"{self.count:,} x {self.size} KiB" if self.count else "a real job"
        rate = f", {self.gigabits:g} Gbit/s" if self.gigabits != 10 else ""
        return f"{what}, {self.trip:g} ms{rate}{', TLS' if self.tls else ''}"


class Site:
    """A cluster whose server also speaks TLS, with artefacts in it. `keys` are those of their frames, `values` how many PyTorch's way gets."""

    def __init__(self, plan):
        self.plan = plan
        self._stack = contextlib.ExitStack()
        self._number = 0

    def __enter__(self):
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="inductorfs-bench-")))
        authority = Authority(directory / "certificates")
        certificate, key = authority.sign("server", "IP:127.0.0.1")
        self.ca_file, self._port = authority.ca_file, free_port()
        self.cluster = self._stack.enter_context(QuickCluster(redis_settings=[
            "--tls-port", self._port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", authority.ca_file,
            "--tls-auth-clients", "no", "--appendonly", "no"]))
        return self

    def __exit__(self, *_):
        self._stack.close()

    def seed(self, files):
        """Publishes {path: bytes}, and puts the same bytes into the server as PyTorch would."""
        self._files = files
        entries = self._publish("seeder")
        self.keys = sorted(blobs(self.cluster))
        if not self.keys or entries < len(self.keys):
            raise SystemExit(f"bench: {len(self.keys)} blobs of {entries} entries were published")
        self.entries, self.values = entries, 0
        for path, content in files:
            self.cluster.redis.command("SET", KEY % self.values, json.dumps({"data": base64.b64encode(content).decode()}))
            self.values += 1

    def _publish(self, name, facts=None):
        """How many entries a new node has published."""
        node = self.cluster.quick(name, facts=facts)
        for path, content in self._files:
            artefacts.write_atomic(node.cache, path, content)
        node.sync(300)
        entries = node.status()["catalog"]["entries"]
        node.unmount()
        return entries

    @contextlib.contextmanager
    def link(self, cell):
        """The port of a link of this kind."""
        target = self._port if cell.tls else self.cluster.redis.socket
        command = [self.plan.program("wire"), target, round(cell.trip * 500), cell.gigabits * 1e9 / 8]
        child = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield int(child.stdout.readline())
        finally:
            child.stdin.close()
            child.wait(10)

    def mounted(self, cell, port, *more, facts=None):
        """A new node behind the link."""
        self._number += 1
        node = self.cluster.node(f"n{self._number}", start=False)
        node.remote = f"redis{'s' if cell.tls else ''}://127.0.0.1:{port}"
        options = self.cluster.options("--lookup-patience", "20000", *(["--ca-file", self.ca_file] if cell.tls else []), *more, **(facts or {}))
        return node.start(*options)

    # ---- what is measured, in seconds

    def prefetched(self, cell, port):
        """And the mount's start."""
        began = time.monotonic()
        node = self.mounted(cell, port, "--prefetch", PREFETCH)
        mounted = time.monotonic()
        wait_until(lambda: node.ask({"op": "status"})["counters"].get("fetch.blobs", 0) >= len(self.keys), 300, "all of it", pause=0.002)
        seconds = time.monotonic() - mounted
        node.stop()
        return seconds, mounted - began

    def first_touch(self, cell, port):
        facts = {"torch": f"of node {self._number + 1}"}
        node = self.mounted(cell, port, "--prefetch", PREFETCH, facts=facts)
        self._publish(f"publisher{self._number}", facts)
        return self._touched(node)

    def one_by_one(self, cell, port):
        return self._touched(self.mounted(cell, port, "--prefetch", 0))

    def _touched(self, node):
        """The names are known: to list them would be a first touch of the directories."""
        wait_until(lambda: node.ask({"op": "status"})["catalog"]["entries"] >= self.entries, 120, "the index")
        if fetched := node.ask({"op": "status"})["counters"].get("fetch.blobs", 0):
            raise SystemExit(f"bench: {fetched} blobs are on the node before the first touch")
        seconds = self._read_all(node.cache)
        node.stop()
        return seconds

    def _read_all(self, directory):
        paths = sorted(str(directory / path) for path, _ in self._files)
        began = time.monotonic()
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            while os.read(file, 1 << 20):
                pass
            os.close(file)
        return time.monotonic() - began

    def bare(self, *_):
        """Without a link."""
        with tempfile.TemporaryDirectory(dir=self.cluster.directory) as directory:
            with bare_mount(self.plan.program("bare_mount"), Path(directory)) as mountpoint:
                for path, content in self._files:
                    behind = Path(directory) / "behind" / path
                    behind.parent.mkdir(parents=True, exist_ok=True)
                    behind.write_bytes(content)
                return self._read_all(mountpoint)

    def raw(self, cell, port, *more, keys=None):
        command = [self.plan.program("raw_fetch"), port, self.cluster.directory / "values", *(["--tls"] if cell.tls else []), *more]
        lines = b"".join(key.hex().encode() + b"\n" for key in keys or self.keys)
        done = subprocess.run([str(word) for word in command], input=lines, stdout=subprocess.PIPE, check=True, timeout=300)
        return json.loads(done.stdout)["seconds"]

    def pytorchs_way(self, cell, port):
        """raw_fetch leaves all values in one file, one JSON object behind the other; then each is decoded and written."""
        seconds = self.raw(cell, port, "--one-by-one", keys=[KEY % number for number in range(self.values)])
        values = (self.cluster.directory / "values").read_bytes().replace(b"}{", b"}\n{").splitlines()
        with tempfile.TemporaryDirectory(dir=self.cluster.directory) as directory:
            began = time.monotonic()
            for number, value in enumerate(values):
                (Path(directory) / str(number)).write_bytes(base64.b64decode(json.loads(value)["data"]))
            return seconds + time.monotonic() - began


def one_cell(plan, site, cell, table):
    plan.phase(cell.name)
    is_large = cell.count > MANY
    rows = {what: table.row(f"{cell.name}: {what}", aim=aim if AIMED.fullmatch(cell.text) else None) for what, aim in AIMS.items()
            if not is_large or what != "one by one"}
    rounds = plan.pick(1, 2, 1 if is_large else 3 if AIMED.fullmatch(cell.text) else 2)
    with site.link(cell) as port:
        for number in range(rounds):
            calls = {"raw": site.raw, "prefetched": site.prefetched, "first touch": site.first_touch}
            if not is_large:
                calls |= {"one by one": site.one_by_one, BARE: site.bare}
            taken = {what: calls[what](cell, port) for what in order(calls, number)}
            seconds, start = taken["prefetched"]
            rows["prefetched"].add("ours", seconds).add("raw", taken["raw"]).add("mount's start", start)
            for what in taken.keys() & {"first touch", "one by one"}:
                rows[what].add("ours", taken[what]).add("raw", taken["raw"])
            if BARE in taken:
                rows["first touch"].add(BARE, taken[BARE])
        if not is_large:
            rows["one by one"].add("PyTorch's way", site.pytorchs_way(cell, port))


def files_of(plan, cell):
    """[(path, bytes)] of a cell; of the corpus, what is shared but for the precompiled header, which a warm start does not open."""
    if cell.count:
        return [(artefacts.code(f"entry {number}"), text(cell.size << 10, number)) for number in range(cell.count)]
    made = recorded(plan).directory
    return [(name, (made / name).read_bytes()) for name in sorted(compare.shared_names(made)) if (made / name).is_file()]


def measure(plan):
    table = Table("A fresh node over a link", "s", "ours", "raw")
    cells = [Cell.parse(word) for word in (plan.cells or CELLS[plan.size]).split(",")]
    for shape in dict.fromkeys((cell.count, cell.size) for cell in cells):
        here = [cell for cell in cells if (cell.count, cell.size) == shape]
        with Site(plan) as site:
            site.seed(files_of(plan, here[0]))
            for cell in here:
                one_cell(plan, site, cell, table)
    return table

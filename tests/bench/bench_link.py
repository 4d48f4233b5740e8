#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a node takes to get what others have published, over a link of our own (wire.cc), beside what the same link costs without us.

  prefetched     from the mount's start until all of it is in the node's store, nobody asks for anything
  first touch    every file is opened and read once in the order of its name, and nothing was fetched before
  raw            the same frames in one pipeline on one connection, written to one ext4 file (raw_fetch.cc)
  raw, one by one        the same with a round trip for each
  PyTorch's way          one by one, each value JSON with the bytes in base64 (torch/_inductor/remote_cache.py), decoded and written to a file each

  bench_link.py WIRE RAW_FETCH [--cells COUNTxKIB@RTTms,...] [--rate BITS_PER_SECOND] [--repeat N] [--out DIRECTORY]
"""
import argparse
import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import artefacts  # noqa: E402
from inductorfs_testing.mounts import QuickCluster, blobs, text  # noqa: E402
from inductorfs_testing.processes import wait_until  # noqa: E402
from table import Table, write  # noqa: E402

CELLS = "1000x20@0.64,1000x20@5,1000x1@0.64,200x200@0.64"
AIMS = {"prefetched": 1.5, "first touch": 2.0}
KEY = b"torch:%d"
PREFETCH = 8 << 30


@contextlib.contextmanager
def wire(program, redis, milliseconds, rate):
    """The port of a link with this round trip."""
    child = subprocess.Popen([program, redis.socket, str(round(milliseconds * 500)), str(rate / 8)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield int(child.stdout.readline())
    finally:
        child.stdin.close()
        child.wait(10)


def seed(cluster, count, size):
    """Publishes the artefacts, and puts the same bytes into the server as PyTorch would. The paths."""
    node = cluster.quick("seeder")
    paths = [artefacts.write_atomic(node.cache, artefacts.code(f"entry {number}"), text(size, number)).relative_to(node.cache) for number in range(count)]
    node.sync(300)
    for number, path in enumerate(paths):
        content = (node.cache / path).read_bytes()
        cluster.redis.command("SET", KEY % number, json.dumps({"data": base64.b64encode(content).decode()}))
    return sorted(paths)


def node_on(cluster, name, port, prefetch):
    node = cluster.node(name, start=False)
    node.remote = f"redis://127.0.0.1:{port}"
    began = time.monotonic()
    node.start(*cluster.options("--prefetch", str(prefetch), "--lookup-patience", "20000"))
    return node, began


def prefetched(cluster, name, port, paths):
    node, began = node_on(cluster, name, port, PREFETCH)
    wait_until(lambda: node.counters().get("fetch.blobs", 0) >= len(paths), 300, "all of it", pause=0.005)
    seconds = time.monotonic() - began
    node.stop()
    return seconds


def first_touch(cluster, name, port, paths):
    node, _ = node_on(cluster, name, port, 0)
    wait_until(lambda: node.status()["counters"].get("catalog.entries", len(paths)) >= len(paths) and os.path.lexists(node.cache / paths[0]), 60, "the index")
    began = time.monotonic()
    for path in paths[1:]:
        with open(node.cache / path, "rb") as file:
            file.read()
    seconds = time.monotonic() - began
    node.stop()
    return seconds


def lines(keys):
    return b"".join(key.hex().encode() + b"\n" for key in keys)


def raw(program, port, keys, *more):
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run([program, "127.0.0.1", str(port), file.name, *more], input=lines(keys), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["seconds"]


def pytorchs_way(program, port, count):
    """raw_fetch leaves all values in one file, one JSON object behind the other; then each is decoded and written."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "values"
        done = subprocess.run([program, "127.0.0.1", str(port), file, "--one-by-one"], input=lines(KEY % number for number in range(count)),
                              stdout=subprocess.PIPE, check=True)
        values = file.read_bytes().replace(b"}{", b"}\n{").splitlines()
        began = time.monotonic()
        for number, value in enumerate(values):
            (Path(directory) / str(number)).write_bytes(base64.b64decode(json.loads(value)["data"]))
        return json.loads(done.stdout)["seconds"] + time.monotonic() - began


def one_cell(arguments, cell, table):
    shape, _, trip = cell.partition("@")
    count, size = (int(word) for word in shape.split("x"))
    name = f"{count} x {size} KiB, {trip} ms"
    with QuickCluster() as cluster:
        paths = seed(cluster, count, size << 10)
        keys = sorted(blobs(cluster))
        with wire(arguments.wire, cluster.redis, float(trip), arguments.rate) as port:
            for number in range(arguments.repeat):
                table.add(f"{name}, prefetched", "ours", prefetched(cluster, f"p{number}", port, paths))
                table.add(f"{name}, prefetched", "raw", raw(arguments.raw_fetch, port, keys))
                table.add(f"{name}, first touch", "ours", first_touch(cluster, f"t{number}", port, paths))
                table.add(f"{name}, first touch", "raw", raw(arguments.raw_fetch, port, keys))
                table.add(f"{name}, first touch", "raw, one by one", raw(arguments.raw_fetch, port, keys, "--one-by-one"))
                table.add(f"{name}, first touch", "PyTorch's way", pytorchs_way(arguments.raw_fetch, port, count))
    for what, aim in AIMS.items():
        table.aim[f"{name}, {what}"] = aim


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wire", type=Path)
    parser.add_argument("raw_fetch", type=Path)
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--rate", type=float, default=10e9)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    table = Table(f"A fresh node over a link of {arguments.rate / 1e9:g} Gbit/s", "s", "ours", "raw")
    for cell in arguments.cells.split(","):
        one_cell(arguments, cell, table)
    if arguments.out:
        write({"link": table}, arguments.out)
    print(table.markdown())
    print(json.dumps(table.json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Costs of warm files in C: ext4, the mount, and a FUSE file system with nothing in it, which is what the kernel itself costs;
and the daemon's memory with many entries.

  bench_files.py FILE_COSTS BARE_MOUNT [--entries 10000]
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import compare  # noqa: E402
from inductorfs_testing.fixtures import Cluster  # noqa: E402
from inductorfs_testing.processes import run, wait_until  # noqa: E402

LIMIT = 1.2
WRITERS = ("--writers", "all")  # this program, without torch, writes to nodes of its environment
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def code_name(number):
    """<xx>/<c+51>.cpp: a generated source, small and numerous; a .py would have to be named by its content."""
    digits = ""
    for _ in range(51):
        digits += ALPHABET[number % 32]
        number //= 32
    return f"{digits[:2]}/c{digits}.cpp"


def put(root, name, content):
    """write_atomic of torch/_inductor/codecache.py."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{os.getpid()}.1.tmp"
    temporary.write_bytes(content)
    temporary.rename(path)
    return path


@contextlib.contextmanager
def bare_mount(program, mountpoint, name):
    """A FUSE file system with nothing in it but one file that the kernel keeps: what no other can go below."""
    mountpoint.mkdir(parents=True)
    served = subprocess.Popen([program, mountpoint, *name.split("/")])
    try:
        wait_until((mountpoint / name).exists, what="the bare mount")
        yield mountpoint / name
    finally:
        subprocess.run(["umount", mountpoint], check=True)
        served.wait(20)


def file_costs(cluster, program, bare_program):
    """The file is made on node a and read on node b, twice: the first touch fetches."""
    a, b = cluster.node("a", options=WRITERS), cluster.node("b", options=WRITERS)
    content = (b"# 16 KiB\n" * 2000)[:16 * 1024]
    put(a.cache, code_name(1), content)
    a.sync()
    b.catch_up(a)
    local = put(cluster.directory / "p" / "cache", code_name(1), content)  # as many directories above it as on node b
    with bare_mount(bare_program, cluster.directory / "q" / "cache", code_name(1)) as bare:
        files = [local, b.cache / code_name(1), bare]
        run([program, *files])
        before = b.counters()
        done = run([program, *files], seconds=120)
    requests = {name: grown for name, grown in compare.difference(before, b.counters()).items() if name == "fuse.requests"}
    costs = json.loads(done.out)
    plain, mount, least = (costs[str(path)] for path in files)
    print(f"{'nanoseconds':18} {'ext4':>10} {'mount':>10} {'ratio':>8} {'bare FUSE':>10} {'ratio':>8}")
    for what in plain:
        ratio = mount[what] / plain[what]
        print(f"{what:18} {plain[what]:10.0f} {mount[what]:10.0f} {ratio:8.3f} {least[what]:10.0f} "
              f"{least[what] / plain[what]:8.3f}{'' if ratio <= LIMIT else '   OVER'}")
    print(f"requests to the daemon meanwhile: {sum(requests.values())}")
    return {"ext4": plain, "mount": mount, "bare FUSE": least, "requests": sum(requests.values())}


def resident(node):
    """Resident MiB of the processes that serve the mount."""
    total = 0
    for pid in node.daemons():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


def memory(cluster, entries):
    writer = cluster.node("writer", options=WRITERS)
    empty = resident(writer)
    for number in range(entries):
        put(writer.cache, code_name(number + 100), f"# module {number}\n".encode() * 20)
    writer.sync(300)
    reader = cluster.node("reader", options=WRITERS)
    reader.catch_up(writer, 60)
    mounted = resident(reader)
    for name in compare.names(reader.cache):
        os.stat(reader.cache / name)
    result = {"empty": empty, "writer": resident(writer), "reader, listed": mounted, "reader, all touched": resident(reader)}
    print(f"RSS in MiB with {entries} entries: " + json.dumps({name: round(value, 1) for name, value in result.items()}))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("bare", type=Path)
    parser.add_argument("--entries", type=int, default=10000)
    parser.add_argument("--torch", default="2.15", help="whose Python the mount asks for its facts")
    arguments = parser.parse_args()
    with Cluster(torch=arguments.torch) as cluster:
        out = {"costs": file_costs(cluster, arguments.program, arguments.bare)}
    with Cluster(torch=arguments.torch) as cluster:
        out["rss"] = memory(cluster, arguments.entries)
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a cluster costs its server and its nodes, for docs/sizing.md. One node publishes artefacts that zstd makes a quarter smaller. Then nodes that know
nothing mount, one after the other, until each of them has every artefact on its disk: without TLS, and with it. A mean for one node.

  memory           of Redis for one artefact, above what an empty server uses (INFO memory)
  sent             by the server to a new node (INFO stats), and commands (INFO stats)
  server's time    processor time of the server for a new node (INFO cpu)
  time             from the mount to the last artefact
  connections      of a node that is idle after its start
  RSS              of a node's worker, supervisor and messenger after its start

  bench_sizing.py [--entries 4000] [--size 4000] [--large 67108864] [--nodes 3]
"""
import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import artefacts  # noqa: E402
from inductorfs_testing.certificates import Authority  # noqa: E402
from inductorfs_testing.mounts import QuickCluster, text  # noqa: E402
from inductorfs_testing.ports import free_port  # noqa: E402
from inductorfs_testing.processes import wait_until  # noqa: E402

LINE = "{:44} {:>12} {:>12}"


def info(redis, section):
    """The fields of INFO, numbers as such."""
    found = {}
    for line in redis.command("INFO", section).decode().splitlines():
        name, _, value = line.partition(":")
        found[name] = float(value) if value.replace(".", "", 1).isdigit() else value
    return found


def resident(pids):
    """MiB of private and shared memory that these processes have mapped in."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def publish(cluster, options):
    """Bytes of Redis for one small artefact, and those of the large ones."""
    seeder = cluster.quick("seeder")
    empty = info(cluster.redis, "memory")["used_memory"]
    for number in range(options.entries):
        artefacts.write_atomic(seeder.cache, artefacts.code(f"entry {number}"), text(options.size, number))
    seeder.sync(600)
    small = info(cluster.redis, "memory")["used_memory"]
    for number in range(options.large // (16 << 20)):
        artefacts.write_atomic(seeder.cache, artefacts.code(f"large {number}"), text(16 << 20, number))
    seeder.sync(600)
    large = info(cluster.redis, "memory")["used_memory"]
    seeder.unmount()
    return (small - empty) / options.entries, large - small


def start(cluster, name, remote, options):
    """What one new node costs."""
    before = {section: info(cluster.redis, section) for section in ("stats", "cpu")}
    own = before["stats"]["total_commands_processed"]
    begin = time.monotonic()
    node = cluster.quick(name, *options["tls"][remote], remote=options["urls"][remote])
    wait_until(lambda: node.counters().get("fetch.blobs", 0) >= options["blobs"], 300, "all artefacts", pause=0.2)
    took = time.monotonic() - begin
    after = {section: info(cluster.redis, section) for section in ("stats", "cpu")}
    time.sleep(40)  # connections that are idle are closed after RemoteOptions::idle_lifetime
    clients = info(cluster.redis, "clients")["connected_clients"] - 1
    result = {"time, s": took, "sent by the server, MB": (after["stats"]["total_net_output_bytes"] - before["stats"]["total_net_output_bytes"]) / 1e6,
              "commands": after["stats"]["total_commands_processed"] - own,
              "server's processor time, s": sum(after["cpu"][name] - before["cpu"][name] for name in ("used_cpu_user", "used_cpu_sys")),
              "connections when idle": clients, "RSS of the worker, MiB": resident([node.worker()]),
              "RSS of supervisor and messenger, MiB": resident(node.supervisors() + node.messengers())}
    node.unmount()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=4000)
    parser.add_argument("--size", type=int, default=4000)
    parser.add_argument("--large", type=int, default=64 << 20)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inductorfs-sizing-") as directory:
        authority = Authority(Path(directory) / "certificates")
        certificate, key = authority.sign("server", "IP:127.0.0.1")
        plain, tls = free_port(), free_port()
        settings = ["--port", plain, "--tls-port", tls, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file",
                    authority.ca_file, "--tls-auth-clients", "no", "--appendonly", "no"]
        with QuickCluster(redis_settings=settings) as cluster:
            each, large = publish(cluster, options)
            print(f"{options.entries} artefacts of {options.size} bytes: {each:.0f} bytes of Redis each; "
                  f"{options.large / 1e6:.0f} MB in files of 16 MiB: {large / 1e6:.0f} MB of Redis\n")
            known = {"blobs": options.entries + options.large // (16 << 20),
                     "urls": {"plain": f"redis://127.0.0.1:{plain}/0", "TLS": f"rediss://127.0.0.1:{tls}/0"},
                     "tls": {"plain": [], "TLS": ["--ca-file", authority.ca_file]}}
            sums = {remote: [start(cluster, f"{remote}-{number}", remote, known) for number in range(options.nodes)] for remote in known["urls"]}
            print(LINE.format("a new node", *sums))
            for name in sums["plain"][0]:
                print(LINE.format(name, *(f"{sum(one[name] for one in sums[remote]) / options.nodes:.2f}" for remote in sums)))


if __name__ == "__main__":
    main()

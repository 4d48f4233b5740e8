#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the log of nodes costs: create+write+close and rename on a mount that keeps it and on one that does not, in turn; and the
requests that a warm file makes to the daemon meanwhile. Exit code 1 when the log costs more than the limit.

  bench_node_log.py NAME_COSTS FILE_COSTS
"""
import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing.mounts import QuickCluster  # noqa: E402
from inductorfs_testing.processes import run  # noqa: E402

LIMIT = 1.10
WITHOUT = {"INDUCTORFS_FAIL_POINT": "takeover.log=EIO"}  # tests/crash/manifest.txt


def measure(name_costs, file_costs):
    with QuickCluster() as cluster:
        nodes = [cluster.quick("without", environment=WITHOUT), cluster.quick("with")]
        directories = [node.cache / "directory" for node in nodes]
        for directory in directories:
            directory.mkdir()
        costs = run([name_costs, *directories], seconds=300).out
        warm = [node.cache / "warm" for node in nodes]
        for path in warm:
            path.write_bytes(os.urandom(16 * 1024))
        run([file_costs, *warm])
        before = [node.counters()["fuse.requests"] for node in nodes]
        run([file_costs, *warm], seconds=120)
        requests = [node.counters()["fuse.requests"] - was for node, was in zip(nodes, before, strict=True)]
    return [json.loads(costs)[str(directory)] for directory in directories], requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name_costs", type=Path)
    parser.add_argument("file_costs", type=Path)
    arguments = parser.parse_args()
    (without, with_log), requests = measure(arguments.name_costs, arguments.file_costs)
    print(f"{'nanoseconds':20} {'without':>10} {'with log':>10} {'ratio':>8}")
    over = False
    for what in without:
        ratio = with_log[what] / without[what]
        over = over or ratio > LIMIT
        print(f"{what:20} {without[what]:10.0f} {with_log[what]:10.0f} {ratio:8.3f}{'' if ratio <= LIMIT else '   OVER'}")
    print(f"requests to the daemon for warm files: {sum(requests)}")
    return 1 if over or sum(requests) else 0


if __name__ == "__main__":
    sys.exit(main())

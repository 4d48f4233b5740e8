#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a job sees of workers that are killed, or replaced by an upgrade, while it works: for each the longest call that was
under way then or began until the next one, over all processes of the load; operations done; errors. Exit code 1 when a process saw an
error.

  bench_takeover.py [--kills 100] [--processes 2] [--pause S] [--upgrade] [--no-resend] [--entries 0] [--json]
"""
import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import artefacts  # noqa: E402
from inductorfs_testing.load import Load  # noqa: E402
from inductorfs_testing.mounts import QuickCluster  # noqa: E402
from inductorfs_testing.processes import wait_until  # noqa: E402
from inductorfs_testing.takeovers import HEALTHY  # noqa: E402

# As on a kernel before 6.9 (tests/crash/manifest.txt).
NO_RESEND = {"INDUCTORFS_FAIL_POINT": "fuse.resend=EIO"}


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def kill(node, load, pause, upgrade):
    """One takeover; when it began."""
    begin = time.monotonic()
    if upgrade:
        done = node.cli("upgrade", node.cache)
        assert done.code == 0, done.err
    else:
        node.next_worker(node.kill_worker())
    load.advance(1)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > pause, seconds=pause + 10, what="the pause")
    return begin


def stalls(begins, results):
    """The longest call of any process that overlaps each takeover. A call that is not among the slow ones was quick."""
    slow = [call for result in results for call in result["slow"]]
    ends = [*begins[1:], float("inf")]
    return [max((took for start, took in slow if start + took >= begin and start < end), default=0.0)
            for begin, end in zip(begins, ends, strict=True)]


def measure(options):
    chance = random.Random(options.kills)
    with QuickCluster() as cluster, tempfile.TemporaryDirectory() as directory:
        node = cluster.quick("a", "--crash-limit", "0", environment=NO_RESEND if options.no_resend else None)
        for index in range(options.entries):
            artefacts.write_graph(node.cache, f"entry {index}", f"value {index}")
        if options.entries:
            node.sync(600)
        with Load(node.cache, Path(directory), options.processes) as load:
            load.advance(200)
            begin = time.monotonic()
            begins = [kill(node, load, options.pause + 0.1 * chance.random(), options.upgrade) for _ in range(options.kills)]
            seconds = time.monotonic() - begin
            results = load.finish()
        told = node.status()["takeover"]
        opened = [line for line in node.log.read_text().splitlines() if " mount.opened " in line][-1]
    took = stalls(begins, results)
    return {"takeovers": options.kills, "restarts": told["restarts"], "upgrades": told["upgrades"], "seconds": round(seconds, 1),
            "p50_ms": round(quantile(took, 0.5) * 1e3, 1), "p99_ms": round(quantile(took, 0.99) * 1e3, 1),
            "max_ms": round(max(took) * 1e3, 1), "operations": sum(result["operations"] for result in results),
            "errors": [error for result in results for error in result["errors"]], "last_opened": opened}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--pause", type=float, default=HEALTHY, help="seconds between two takeovers, and up to 0.1 more")
    parser.add_argument("--upgrade", action="store_true", help="ask for a takeover instead of killing")
    parser.add_argument("--no-resend", action="store_true", help="without FUSE_NOTIFY_RESEND: what is in the slots has to do")
    parser.add_argument("--entries", type=int, default=0, help="artefacts that the mount has before")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    told = measure(options)
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        print(f"takeovers   {told['takeovers']} in {told['seconds']} s ({told['restarts']} restarts, {told['upgrades']} upgrades)")
        print(f"stall       p50 {told['p50_ms']} ms, p99 {told['p99_ms']} ms, max {told['max_ms']} ms")
        print(f"operations  {told['operations']}, errors {len(told['errors'])}")
        print(f"the last worker: {told['last_opened']}")
        for error in told["errors"]:
            print(error)
    return 1 if told["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())

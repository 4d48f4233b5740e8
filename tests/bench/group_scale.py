# SPDX-License-Identifier: Apache-2.0
"""What grows with a cluster: a mount beside very many entries, and one server behind very many mounts, which are simulated (bench_followers.cc,
bench_publishers.cc, bench_starters.cc; storm.cc has the job)."""
import time
from pathlib import Path

from inductorfs_testing import artefacts
from inductorfs_testing.mounts import QuickCluster, fill_index
from inductorfs_testing.processes import wait_until
from suite import order
from table import Table
from told import told_by

OURS, RAW, ALONE = "ours", "raw", "each by itself"
BOUNDED, MEMORY = 100_000, 60
START = 1.2  # of what sending the same bytes raw costs the server


def memory_of(node):
    """Megabytes of the worker at its peak."""
    lines = Path(f"/proc/{node.worker()}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def entries(plan, table):
    """A new node's mount, in a cluster with so many entries."""
    for count, rounds in plan.pick({1_000: 1}, {10_000: 2, 100_000: 2}, {10_000: 3, 100_000: 3, 1_000_000: 1}).items():
        plan.phase(f"{count:,} entries")
        bounds = (1, 1, MEMORY) if count == BOUNDED else (None, None, None)
        answers, known, memory = (table.row(f"{count:,} entries: {what}", unit=unit, other=None, bound=bound) for (what, unit), bound in zip(
            (("the mount answers", "s"), ("all are known", "s"), ("peak memory of the worker", "MB")), bounds, strict=True))
        with QuickCluster(redis_settings=["--appendonly", "no"]) as cluster:
            first = cluster.quick("first")
            artefacts.write_atomic(first.cache, artefacts.code("one"), "text")
            first.sync()
            fill_index(cluster, count)
            first.unmount()
            for number in range(rounds):
                began = time.monotonic()
                node = cluster.quick(f"n{number}", "--prefetch", "0")
                answers.add(OURS, time.monotonic() - began)
                wait_until(lambda: node.ask({"op": "status"})["catalog"]["entries"] >= count, 300, "all entries", pause=0.01)
                known.add(OURS, time.monotonic() - began)
                memory.add(OURS, memory_of(node))
                node.stop()


def starters(plan, table):
    """All start one job at the same moment, and have nothing yet."""
    for mounts, rounds in plan.pick({1: 1}, {1: 2, 50: 2}, {1: 3, 10: 3, 100: 3, 1_000: 1}).items():
        who = f"{mounts:,} mount{'s start' if mounts > 1 else ' starts'}"
        plan.phase(f"{who} one job")
        work = table.row(f"{who} a job: the server's processor time", unit="s", aim=START if mounts >= 100 else None)
        slowest = table.row(f"{who} a job: until the slowest has all", unit="s")
        for number in range(rounds):
            for side in order((OURS, RAW), number):
                told = told_by(plan.program("bench_starters"), "ours" if side == OURS else "raw", mounts)
                work.add(side, told["server_seconds"])
                slowest.add(side, told["slowest"])


def followers(plan, table):
    """They only listen; then one node publishes every two seconds. All begin at once: less than two looks at the heads (RemoteOptions::head_interval)
    would have one or none of them by chance."""
    mounts, seconds, publishes = plan.pick((5, 1, 1), (50, 30, 4), (1_000, 30, 20))
    plan.phase(f"{mounts:,} mounts that listen")
    told = told_by(plan.program("bench_followers"), mounts, seconds, publishes)
    for what, name in (("idle", "idle"), ("publishing", "one publish every two seconds")):
        bounds = (1, 3, None) if what == "idle" else (None, None, None)
        for (figure, text, unit), bound in zip((("commands", "commands a second and mount", ""), ("connections", "connections of a mount", ""),
                                                ("processor_percent", "the server's core", "%")), bounds, strict=True):
            table.row(f"{mounts:,} mounts, {name}: {text}", unit=unit, other=None, bound=bound).add(OURS, told[what][figure])


def publishers(plan, table):
    """All have compiled one job and publish it in the same order as fast as they can."""
    hosts = plan.pick(5, 50, 500)
    plan.phase(f"{hosts:,} hosts that publish one job")
    told = told_by(plan.program("bench_publishers"), hosts)
    sent = table.row(f"{hosts:,} hosts publish a job: sent", unit="MB", other=ALONE)
    sent.add(OURS, told["bytes_sent"] / 1e6).add(ALONE, told["bytes"] * hosts / 1e6)
    table.row(f"{hosts:,} hosts publish a job: commands for a group of a host", unit="", other=None).add(
        OURS, told["commands"] / hosts / told["groups"])
    table.row(f"{hosts:,} hosts publish a job: until all are through", unit="s", other=None).add(OURS, told["seconds"])


def measure(plan):
    table = Table("Many entries and many mounts", "s", OURS, RAW)
    entries(plan, table)
    starters(plan, table)
    followers(plan, table)
    publishers(plan, table)
    return table

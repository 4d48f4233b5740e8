#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What roots cost: many users, each in a root of its own, that share with all (--trust all) and each with itself alone (--trust user), beside
one user in one root, and beside one root with as many files. Each side has a mount and a Redis of its own; what takes time is taken in
turn, and is a median. Every user has looked up and read the entries that another node has published for it, and has published some of its own.

  RSS              of the worker, when the users have done that
  idle commands    to Redis in a minute in which nobody does anything and no other mount is there (INFO commandstats)
  mount            of that local tree, from the command to its end
  warm file        stat, open and read of a file that the kernel knows, and the requests to the daemon meanwhile
  first lookup     of an entry whose bytes are on this host, in a root that is new
  absent name      lookup of a name that nobody has
  change           the worker's computing for one further entry of the cluster

  bench_roots.py FILE_COSTS [--users 64] [--entries 200] [--own 10] [--settle 90] [--window 60] [--rounds 7]
"""
import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import artefacts  # noqa: E402
from inductorfs_testing.mounts import QuickCluster, appears  # noqa: E402
from inductorfs_testing.processes import run, wait_until  # noqa: E402
from inductorfs_testing.users import as_user, begin_as, result_of  # noqa: E402

FIRST = 1000
TEXT = "int of_some_length;\n" * 60


def entry(number):
    return artefacts.code(f"entry {number}")


def write_all(root, names):
    for name in names:
        artefacts.write_atomic(root, name, TEXT + name)


def use(root, entries, own, who):
    """What a user's job does: all that the cluster has, and artefacts of its own."""
    os.makedirs(root, exist_ok=True)
    os.path.exists(root / "fxgraph")  # what torch asks for first
    for number in range(entries):
        appears(root / entry(number), 60).read_bytes()
    for number in range(own):
        artefacts.write_atomic(root, artefacts.code(f"{who} {number}"), TEXT + who)


def look_up(root, names):
    """Nanoseconds a name."""
    begin = time.perf_counter_ns()
    found = sum(os.path.lexists(root / name) for name in names)
    return (time.perf_counter_ns() - begin) / len(names), found


class Side:
    """A mount with its users, and a Redis and a seeding node of its own. Use as a context."""

    def __init__(self, title, users, options, own, trust):
        self.title, self.users, self.entries, self.own, self._trust = title, users, options.entries, own, trust
        self._cluster = QuickCluster()
        self._fresh = 0

    def __enter__(self):
        self._cluster.start()
        facts = self._cluster.directory / "facts.json"
        artefacts.fingerprint(facts)
        self._options = ["--fingerprint", facts, "--no-also", "--writers", "all", "--trust", self._trust]
        self._seeder, self.node = (self._started(name) for name in ("seeder", "node"))
        for number in range(self.users if self._trust == "user" else 1):
            self._seed(number, [entry(index) for index in range(self.entries)])
        self._seeder.sync(120)
        return self

    def _started(self, name):
        node = self._cluster.node(name, start=False)
        for directory in (self._cluster.directory, node.root):
            directory.chmod(0o755)
        node.cache.chmod(0o1777)
        return node.start(*self._options)

    def _seed(self, number, names):
        """On the other node, as this user."""
        as_user(FIRST + number, 0o022, write_all, self._seeder.cache / f"user{FIRST + number}", names)

    def __exit__(self, *_):
        self._cluster.close()

    def root(self, number):
        return self.node.cache / f"user{FIRST + number}"

    def work(self):
        """All users at once; the worker's RSS in MiB, before and after."""
        before = self.resident()
        begun = [begin_as(FIRST + number, 0o022, use, self.root(number), self.entries, self.own, str(FIRST + number))
                 for number in range(self.users)]
        for one in begun:
            result_of(one)
        self.node.sync(120)
        self._seeder.unmount()
        return before, self.resident()

    def resident(self):
        lines = Path(f"/proc/{self.node.worker()}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def commands(self):
        """How many Redis has been sent, by kind."""
        lines = self._cluster.redis.command("INFO", "commandstats").decode().splitlines()
        return {line.split(":")[0].removeprefix("cmdstat_"): int(line.split("calls=")[1].split(",")[0]) for line in lines if "calls=" in line}

    def mount(self):
        """Seconds; the users' directories are there afterwards."""
        self.node.unmount()
        begin = time.monotonic()
        self.node.start(*self._options)
        took = time.monotonic() - begin
        assert (self.root(self.users - 1) / artefacts.code(f"{FIRST + self.users - 1} 0")).exists()
        return took

    def first_lookups(self):
        """In another root of the first user, which nobody has used."""
        self._fresh += 1
        root = self.node.cache / f"fresh{self._fresh}"
        as_user(FIRST, 0o022, os.mkdir, root)
        as_user(FIRST, 0o022, os.path.exists, root / "fxgraph")
        took, found = as_user(FIRST, 0o022, look_up, root, [entry(number) for number in range(self.entries)])
        assert found == self.entries
        return took

    def absent_names(self):
        self._fresh += 1
        names = [artefacts.code(f"absent {self._fresh} {number}") for number in range(500)]
        took, found = as_user(FIRST + self.users - 1, 0o022, look_up, self.root(self.users - 1), names)
        assert found == 0
        return took

    def change(self, count=1000):
        """Milliseconds of the worker's processor time for an entry that another node publishes."""
        self._fresh += 1
        if not self._seeder.daemons():
            self._seeder.start(*self._options)
        known, pid = self.node.status()["catalog"]["entries"], self.node.worker()
        before = computed(pid)
        self._seed(0, [artefacts.code(f"change {self._fresh} {number}") for number in range(count)])
        self._seeder.sync()
        wait_until(lambda: self.node.status()["catalog"]["entries"] >= known + count, 60, "the changes", pause=0.2)
        return (computed(pid) - before) * 1000 / count


def computed(pid):
    """Seconds of processor time."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def pause(seconds):
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() - begin >= seconds, seconds + 10, "the end of the pause", pause=0.5)


def idle(sides, settle, window):
    """Commands a minute of each side, all in the same minute, which begins when what the work has left to do is done."""
    pause(settle)
    begin, before = time.monotonic(), [side.commands() for side in sides]
    pause(window)
    minutes = (time.monotonic() - begin) / 60
    told = []
    for side, was in zip(sides, before, strict=True):
        grown = {name: count - was.get(name, 0) for name, count in side.commands().items() if name != "info" and count != was.get(name, 0)}
        print(f"  {side.title}: {grown} in {minutes * 60:.0f} s")
        told.append(sum(grown.values()) / minutes)
    return told


def in_turn(sides, rounds, measure):
    """The median of each side."""
    taken = [[measure(side) for side in sides] for _ in range(rounds)]
    return [statistics.median(values) for values in zip(*taken, strict=True)]


def warm(program, sides):
    """{what: nanoseconds of each side} of a file in each side's last root, and the requests meanwhile."""
    files = [side.root(side.users - 1) / entry(1) for side in sides]
    run([program, *files], seconds=120)
    before = [side.node.counters()["fuse.requests"] for side in sides]
    costs = json.loads(run([program, *files], seconds=120).out)
    requests = [side.node.counters()["fuse.requests"] - was for side, was in zip(sides, before, strict=True)]
    return {what: [costs[str(file)][what][0] for file in files] for what in costs[str(files[0])]}, requests


def measure(program, sides, options):
    sizes = [side.work() for side in sides]
    rows = {"RSS after the mount, MiB": [before for before, _ in sizes], "RSS after the work, MiB": [after for _, after in sizes]}
    print("idle commands:")
    rows["idle commands a minute"] = idle(sides, options.settle, options.window)
    rows["mount, ms"] = [1000 * value for value in in_turn(sides, options.rounds, Side.mount)]
    begun = [side.resident() for side in sides]
    rows["RSS after the next mount, MiB"] = begun
    for side in sides:  # the kernel has forgotten everything
        for number in range(side.users):
            as_user(FIRST + number, 0o022, use, side.root(number), side.entries, 0, "")
    costs, rows["requests for warm files"] = warm(program, sides)
    rows.update({f"warm {what}, ns": values for what, values in costs.items()})
    rows["first lookup, us"] = [value / 1000 for value in in_turn(sides, options.rounds, Side.first_lookups)]
    rows["absent name, us"] = [value / 1000 for value in in_turn(sides, options.rounds, Side.absent_names)]
    rows["change, ms of the worker"] = in_turn(sides, 3, Side.change)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file_costs", type=Path)
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--own", type=int, default=10, help="artefacts that each user publishes")
    parser.add_argument("--settle", type=float, default=90,
                        help="seconds between the work and the idle window, in which the used blobs are renewed (CatalogOptions::renew_pause)")
    parser.add_argument("--window", type=float, default=60, help="seconds of the idle window")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    users, own = options.users, options.own
    with Side("one root", 1, options, own, "all") as one, Side("as many files", 1, options, own * users, "all") as full, \
            Side(f"{users} roots", users, options, own, "all") as many, Side(f"{users} users", users, options, own, "user") as apart:
        sides = [one, full, many, apart]
        rows = measure(options.file_costs, sides, options)
    print(f"{'':32}" + "".join(f"{side.title:>16}" for side in sides) + f"{'roots to one':>14}{'users to one':>14}")
    for what, values in rows.items():
        ratios = [f"{value / values[0]:.3f}" if values[0] else "-" for value in values[2:]]
        print(f"{what:32}" + "".join(f"{value:16.3f}" for value in values) + f"{ratios[0]:>14}{ratios[1]:>14}")
    grown = rows["RSS after the work, MiB"][2] - rows["RSS after the work, MiB"][0]
    print(f"a root of {options.entries} entries that its user has read: {grown * 1024 / (users - 1):.0f} KiB")
    print(json.dumps({what: [round(value, 3) for value in values] for what, values in rows.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

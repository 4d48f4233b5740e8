#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs that environments are learned from the jobs (`--writers learned`), seconds, medians; the sides of each table are taken in turn.
The job is one of tests/torch/test_cpu_jobs.py: `compile` is from its first call to its result, `job` the whole process.

  first start     of an environment that the node has never seen, on an empty store; the cluster has everything: under `learned`, and with the
                  same environment declared (`--python`); and the same again by the next process. Also without precompiled headers, which nodes
                  share only where the environment is declared
  warm start      in a root of one environment: an ext4 directory, a mount with `--python`, a mount under `learned`, and there with a process of a
                  second environment alive in the root, idle; and how many requests the kernel has sent to the daemon meanwhile
  two at once     a warm start of each of two environments at the same time: in one root, and in a root each
  storms at once  tests/torch/test_triton_storm.py's of two environments at the same time: in one root, and in a root each

  bench_environments.py [--repeat N] [--job dynamic] [--torch 2.15] [--other 2.9] [--only TABLE,TABLE]
"""
import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import compare, places  # noqa: E402
from inductorfs_testing.fixtures import Cluster  # noqa: E402
from inductorfs_testing.node import elapsed  # noqa: E402
from inductorfs_testing.processes import wait_until  # noqa: E402

JOBS, STORM, STAY = (places.WORKLOADS / f"{name}.py" for name in ("cpu_jobs", "storm", "stay"))
LEARNED = ("--writers", "learned")
GRAPHS = {"train": 2, "inference": 1, "dynamic": 1}
LIMITS = {"first start, learned - declared, seconds": 0.3, "first start, no headers, learned - declared, seconds": 0.3,
          "warm start, learned / ext4": 1.05}


class Bench:
    """The options, and the times of each side. Needs external synchronisation."""

    def __init__(self, options):
        self.options = options
        self.times, self.ratios, self.requests = {}, {}, {}

    def note(self, table, side, **values):
        for what, value in values.items():
            self.times.setdefault(table, {}).setdefault(side, {}).setdefault(what, []).append(value)

    def median(self, table, side, what):
        return statistics.median(self.times[table][side][what])

    def job(self, node, version, root="", warm=True, **environment):
        """(what it has told, seconds of the process)"""
        return self.ended(self.begin(node, version, root, **environment), warm)

    def begin(self, node, version, root="", **environment):
        node.python = places.venv_python(version)
        return node.begin(JOBS, "--jobs", self.options.job, TORCHINDUCTOR_CACHE_DIR=node.cache / root, **environment)

    def ended(self, job, warm=True):
        done = job.wait()
        told = done.json
        if warm:
            assert told["counters"].get("inductor.fxgraph_cache_hit") == GRAPHS[self.options.job], told["counters"]
        return told, done.seconds

    def note_job(self, table, side, done, **values):
        told, seconds = done
        self.note(table, side, compile=told["compile_seconds"], job=seconds, **values)


def learned(cluster, name):
    cluster.python = None
    return cluster.node(name, options=LEARNED)


def declared(cluster, name, version):
    cluster.python = places.venv_python(version)
    return cluster.node(name, declared=True)


def first_starts(bench):
    """A cluster that one node has filled; every further node is new."""
    version = bench.options.torch
    headers = {"": {}, ", no headers": {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}}
    with Cluster(patient=True) as cluster:
        seeder = declared(cluster, "seeder", version)
        for environment in headers.values():
            bench.job(seeder, version, warm=False, **environment)
        seeder.sync(120)
        made = {"declared": lambda name: declared(cluster, name, version), "learned": lambda name: learned(cluster, name)}
        for number in range(bench.options.repeat):
            for kind, environment in headers.items():
                for side in sorted(made, reverse=bool(number % 2)):
                    mount, node = elapsed(made[side], f"{side}{number}{kind.replace(', ', '-').replace(' ', '-')}")
                    bench.note_job("first start", side + kind, bench.job(node, version, **environment), mount=mount)
                    bench.note_job("first start", f"{side}{kind}, the next process", bench.job(node, version, **environment))
                    node.unmount()
    for kind in headers:
        bench.ratios[f"first start{kind}, learned - declared, seconds"] = (
            bench.median("first start", "learned" + kind, "compile") - bench.median("first start", "declared" + kind, "compile"))


def warm_starts(bench):
    """All sides are warm before the first round."""
    version, other = bench.options.torch, bench.options.other
    with Cluster(patient=True) as cluster:
        sides = {"ext4": cluster.node("plain", backing="directory"), "declared": declared(cluster, "declared", version)}
        sides["learned"] = learned(cluster, "learned")
        sides["learned, a second environment lives"] = learned(cluster, "second")
        for node in sides.values():
            bench.job(node, version, warm=False)
            bench.job(node, version)
        node = sides["learned, a second environment lives"]
        bench.job(node, other, warm=False)
        node.python = places.venv_python(other)
        alive = node.begin(STAY, node.cache)
        wait_until(lambda: alive.out, 60, "the second environment")
        for _ in range(bench.options.repeat):
            for side, node in sides.items():
                before = node.requests()
                done = bench.job(node, version)
                grown = compare.difference(before, node.requests())
                bench.note_job("warm start", side, done, requests=sum(grown.values()))
                bench.requests[side] = grown
        assert alive.running, "the second environment has left"
    for side, grown in bench.requests.items():
        print(f"  requests of a warm start, {side}: {grown}")
    for side in ("learned", "learned, a second environment lives"):
        for base in ("ext4", "declared"):
            bench.ratios[f"warm start, {side} / {base}"] = (
                bench.median("warm start", side, "compile") / bench.median("warm start", base, "compile"))


def at_once(bench):
    """Warm starts of two environments at the same time."""
    versions = bench.options.torch, bench.options.other
    roots = {"in one root": ("shared", "shared"), "in a root each": ("one", "two")}
    with Cluster(patient=True) as cluster:
        node = learned(cluster, "node")
        for below in roots.values():
            for version, root in zip(versions, below, strict=True):
                bench.job(node, version, root, warm=False)
        for number in range(bench.options.repeat):
            order = list(roots.items())
            for side, below in order if number % 2 else reversed(order):
                before = node.requests()
                jobs = [bench.begin(node, version, root) for version, root in zip(versions, below, strict=True)]
                done = [bench.ended(job) for job in jobs]
                requests = sum(compare.difference(before, node.requests()).values())
                bench.note("two at once", side, requests=requests, **{version: told["compile_seconds"]
                                                                      for version, (told, _) in zip(versions, done, strict=True)})
    for version in versions:
        bench.ratios[f"two at once, {version}, one root / a root each"] = (
            bench.median("two at once", "in one root", version) / bench.median("two at once", "in a root each", version))


def storms_at_once(bench):
    """Kernels that nobody has compiled, compiled by two environments of two nodes at the same time."""
    versions = bench.options.torch, bench.options.other
    roots = {"in one root": ("shared", "shared"), "in a root each": ("one", "two")}
    with Cluster(patient=True) as cluster:
        nodes = [learned(cluster, name) for name in "ab"]
        turn = 0
        for number in range(bench.options.repeat):
            order = list(roots.items())
            for side, below in order if number % 2 else reversed(order):
                jobs = []
                for version, root in zip(versions, below, strict=True):
                    nodes[0].python = places.venv_python(version)
                    named = [f"--node=e{version.replace('.', 'x')}{node.name}={node.cache / root / 'triton' / '0'}" for node in nodes]
                    jobs.append(nodes[0].begin(STORM, *named, "--processes", 2, "--rounds", 2, "--first", turn,
                                               "--scratch", cluster.directory / f"scratch-{side}-{version}-{turn}".replace(" ", "-")))
                done = [job.wait(900) for job in jobs]
                assert not [error for one in done for error in one.json["errors"] + one.json["mixed"]]
                bench.note("storms at once", side, **{version: one.seconds for version, one in zip(versions, done, strict=True)})
                turn += 2
    for version in versions:
        bench.ratios[f"storms at once, {version}, one root / a root each"] = (
            bench.median("storms at once", "in one root", version) / bench.median("storms at once", "in a root each", version))


TABLES = {"first": first_starts, "warm": warm_starts, "two": at_once, "storms": storms_at_once}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--job", default="dynamic", choices=GRAPHS)
    parser.add_argument("--torch", default="2.15")
    parser.add_argument("--other", default="2.9")
    parser.add_argument("--only", default=",".join(TABLES))
    bench = Bench(parser.parse_args())
    for name in bench.options.only.split(","):
        TABLES[name](bench)
    for table, sides in bench.times.items():
        print(f"{table}:")
        for side, values in sides.items():
            told = "   ".join(f"{what} {statistics.median(taken):.2f} of {[round(one, 2) for one in sorted(taken)]}"
                              for what, taken in values.items())
            print(f"  {side:36} {told}")
    for name, value in bench.ratios.items():
        limit = LIMITS.get(name)
        print(f"{name:60} {value:6.3f}" + ("" if limit is None else f"   at most {limit}{'' if value <= limit else '   OVER'}"))
    print(json.dumps({"ratios": bench.ratios, "times": bench.times}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

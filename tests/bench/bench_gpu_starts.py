#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of tests/gpu/transformer.py on this host's CUDA device, each on a node with a home of its own: on a plain directory, on a copy of it, on
two mounts that share nothing but Redis. Exit code 1 when a result differs, or a graph was compiled that was there.

  bench_gpu_starts.py [--torch 2.15] [--rounds 1]
"""
import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import places  # noqa: E402
from inductorfs_testing.fixtures import Cluster  # noqa: E402

JOB = places.REPOSITORY / "tests" / "gpu" / "transformer.py"
LINE = "{:44} {:>9}  {}"


class Starts:
    """Runs the job, prints a line for each start and remembers what is wrong."""

    def __init__(self):
        self.results, self.wrong = None, 0

    def run(self, node, what, cold=False):
        node.compilers.clear()
        out = node.run(JOB).json
        compiled = sum(count for kind, count in node.compilers.counts().items() if kind in ("compile", "link", "header"))
        print(LINE.format(f"{what} ({out['device']})", f"{out['seconds']:.2f} s", f"{out['misses']} graphs compiled, {compiled} C++ builds"), flush=True)
        self.results = self.results or out["results"]
        self.wrong += out["results"] != self.results
        self.wrong += not cold and out["misses"] > 0


def files_below(directory: Path):
    return sorted(os.path.relpath(os.path.join(top, name), directory) for top, _, names in os.walk(directory) for name in names)


def measure(starts, version):
    with Cluster(torch=version, declared=True) as cluster:
        plain, copied = (cluster.node(name, start=False, backing="directory") for name in ("plain", "copied"))
        starts.run(plain, "plain directory, cold", cold=True)
        starts.run(plain, "plain directory, warm")
        shutil.copytree(plain.cache, copied.cache, dirs_exist_ok=True, symlinks=True)
        starts.run(copied, "copied directory, first start there")
        starts.run(copied, "copied directory, warm")
        a, b = cluster.node("a"), cluster.node("b")
        starts.run(a, "mount, cold", cold=True)
        a.sync()
        b.catch_up(a)
        starts.run(b, "mount on another node, first start there")
        starts.run(b, "mount on another node, warm")
        outside = files_below(b.home)
        print(f"outside the cache directory, in that node's home: {len(outside)} files: {', '.join(outside[:4])} ...", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", default="2.15")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    starts = Starts()
    for _ in range(given.rounds):
        measure(starts, given.torch)
    return 1 if starts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

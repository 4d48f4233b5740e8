#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two nodes on this host: the same job on node A, which compiles, and on node B, which shares nothing with A but Redis. The mounts are told of
nothing, and the job has the variables that `inductorfs env` prints. A part of it are kernels of Triton, compiled for a GPU of sm_90 and
not run, so that no GPU is needed. scripts/run calls it.

  two_nodes.py [--jobs train,inference,dynamic] [--torch 2.15]
"""
import argparse
import signal
import sys

from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.node import elapsed
from inductorfs_testing.processes import Failed

JOBS = places.WORKLOADS / "cpu_jobs.py"
KERNELS = (places.WORKLOADS / "triton_kernels.py", "--only", "axpy,softmax,layer_norm", "--targets", "90")
COLUMNS = "{:28} {:>9} {:>9} {:>10} {:>8} {:>10} {:>9} {:>12}"


def job(node, what, names):
    """One run of the job, as a line of the table."""
    node.compilers.clear()
    out = node.run(JOBS, "--jobs", names).json
    kernels = node.run(*KERNELS).json
    out["kernels"] = (len(kernels["cubins"]), kernels["stages"].get("cubin", 0))
    out["results"]["kernels"] = kernels["cubins"]
    counts, counters = node.compilers.counts(), out["counters"]

    def pair(name):
        return f"{counters.get(name + '_hit', 0)}/{counters.get(name + '_miss', 0)}"

    compiled = sum(counts.get(kind, 0) for kind in ("compile", "link", "header"))
    print(COLUMNS.format(what, f"{out['compile_seconds']:.2f} s", pair("inductor.fxgraph_cache"),
                         pair("aot_autograd.autograd_cache"), "{0}/{1}".format(out["kernels"][0] - out["kernels"][1], out["kernels"][1]), compiled, counts.get("preprocess", 0),
                         node.counters().get("fetch.blobs", 0)), flush=True)
    return out


def verdict(cold, fresh, same):
    """What is wrong (empty: nothing), and the line that says so."""
    wrong = []
    hits = fresh["counters"].get("inductor.fxgraph_cache_hit", 0)
    misses = fresh["counters"].get("inductor.fxgraph_cache_miss", 0)
    kernels, compiled = fresh["kernels"]
    if not same:
        wrong.append("the results of the nodes differ")
    if misses or not hits:
        wrong.append(f"node B compiled {misses} of {hits + misses} graphs itself")
    if compiled or not kernels:
        wrong.append(f"node B compiled {compiled} of {kernels} Triton kernels itself")
    if wrong:
        return wrong, f"scripts/run: it does not work: {', and '.join(wrong)}"
    faster = cold["compile_seconds"] / max(fresh["compile_seconds"], 0.01)
    return wrong, (f"scripts/run: it works: node B was {faster:.0f} times as fast as node A ({fresh['compile_seconds']:.1f} s instead of "
                   f"{cold['compile_seconds']:.1f} s): it compiled nothing, took {hits} graphs and {kernels} Triton kernels of node A from the cluster, and its results are equal "
                   "to the bit")


def show(version, names):
    with Cluster(torch=version) as cluster:
        print(f"redis-server at {cluster.redis.socket}, torch {version}, jobs {names}\n")
        print("C++ builds and g++ -E: how often a job ran the compiler; with -E it reads headers only, for the key of the precompiled header.")
        print("Node A compiles now, which takes two minutes or more.\n")
        print(COLUMNS.format("", "compile", "fxgraph", "aotautogr.", "Triton", "C++ builds", "g++ -E", "fetched"))
        print(COLUMNS.format("", "seconds", "hit/miss", "hit/miss", "hit/miss", "", "", "artefacts"), flush=True)
        a, b = cluster.node("a"), cluster.node("b")
        cold = job(a, "node A, empty cluster", names)
        seconds, _ = elapsed(a.sync, 120)
        b.catch_up(a)
        a_again = job(a, "node A, again", names)
        fresh = job(b, "node B, first run ever", names)
        job(b, "node B, again", names)
        same = all(out["results"] == cold["results"] for out in (a_again, fresh))
        keys = cluster.redis.keys()
        total = sum(cluster.redis.size_of(key) for key in keys)
        print(f"\nresults equal to the bit: {'yes' if same else 'NO'}")
        print(f"node A's sync returned after {seconds:.2f} s; Redis holds {total / 1e6:.1f} MB in {len(keys)} keys")
        print(f"node B lists {len(compare.shared_names(b.cache))} shared artefacts below {b.cache}")
        wrong, line = verdict(cold, fresh, same)
    print(f"\n{line}", flush=True)  # after the mounts have gone
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="train,inference,dynamic")
    parser.add_argument("--torch", default="2.15")
    arguments = parser.parse_args()
    # So that an interrupt ends the mounts too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return show(arguments.torch, arguments.jobs)
    except Failed as failure:
        print(f"scripts/run: {failure}", flush=True)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

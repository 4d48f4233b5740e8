#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the facts of a host cost, in milliseconds, medians; all sides in one run and taken in turn.

  cold, GPU            nothing remembered, the GPU probe before the stand-in driver (a real driver takes longer to start)
  cold, no GPU         nothing remembered, no driver
  cached, GPU          as a remount: digests and answers are remembered by file identity, the GPU probe still runs
  cached, no GPU       as a remount on a CPU host
  command              the program `inductorfs fingerprint --json`, which remembers nothing
  remount              the whole `inductorfs mount` command, a second time on the same store
  python import torch  the whole process
  torch's own keys     torch_key, triton_key and the system hash, in a process that has imported torch
  bench_fingerprint.py FINGERPRINT_COSTS [--repeat N] [--torch 2.15]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import places  # noqa: E402
from inductorfs_testing.fixtures import Cluster, stand_in_gpu  # noqa: E402

# What a remount may cost beside what the job's first line costs anyway.
LIMIT = 0.05
OWN_KEYS = """
import time, torch
from torch._inductor import codecache
begun = time.perf_counter()
codecache.torch_key()
codecache.CacheBase.get_system()
print((time.perf_counter() - begun) * 1e3)
"""


def stand_in(version, directory):
    """The stand-in driver, built once."""
    stand_in_gpu(version, directory)
    return {**os.environ, "LD_LIBRARY_PATH": str(directory)}


def output_of(command, environment=None):
    done = subprocess.run([str(part) for part in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=True, timeout=300)
    return done.stdout


def wall_of(command, environment=None):
    begun = time.perf_counter()
    output_of(command, environment)
    return (time.perf_counter() - begun) * 1e3


def facts(program, python, cache, environment, wanted):
    """Milliseconds of one probe; `wanted` guards against timing another host than was meant."""
    taken, seen = output_of([program, python, cache], environment).split()
    assert seen == wanted, f"the probe saw {seen}, not {wanted}"
    return float(taken)


def remount(version):
    """The mount command's time on a store that has been mounted before."""
    with Cluster(torch=version, declared=True) as cluster:
        node = cluster.node("a")
        times = []
        for _ in range(3):
            node.cli("unmount", node.cache)
            begun = time.perf_counter()
            node.start()
            times.append((time.perf_counter() - begun) * 1e3)
        return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--torch", default="2.15")
    parser.add_argument("--no-mount", action="store_true", help="leave out the remount and the command")
    arguments = parser.parse_args()
    python, plain = places.venv_python(arguments.torch), dict(os.environ)
    times = {}

    def note(name, value):
        times.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory(prefix="inductorfs-bench-") as directory:
        device = stand_in(arguments.torch, Path(directory) / "driver")
        memory = Path(directory) / "memory.json"
        # Fills the page cache and the memory: no first measurement reads the disk.
        facts(arguments.program, python, memory, plain, "none")
        output_of([python, "-c", "import torch"])
        for _ in range(arguments.repeat):
            note("cold, GPU", facts(arguments.program, python, "-", device, "gpu"))
            note("cold, no GPU", facts(arguments.program, python, "-", plain, "none"))
            note("cached, GPU", facts(arguments.program, python, memory, device, "gpu"))
            note("cached, no GPU", facts(arguments.program, python, memory, plain, "none"))
            note("python import torch", wall_of([python, "-c", "import torch"]))
            note("torch's own keys", float(output_of([python, "-c", OWN_KEYS]).split()[-1]))
            if not arguments.no_mount:
                note("command", wall_of([places.program(), "fingerprint", "--json", "--python", python]))
        if not arguments.no_mount:
            times["remount"] = remount(arguments.torch)
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, value in median.items():
        print(f"{name:22} {value:9.1f} ms   of {[round(one, 1) for one in sorted(times[name])]}")
    ratio = median["cached, no GPU"] / median["python import torch"]
    print(f"cached, no GPU / python import torch {ratio:6.3f}   at most {LIMIT}{'' if ratio <= LIMIT else '   OVER'}")
    print(json.dumps({"medians": median, "ratio": ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

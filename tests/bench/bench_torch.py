#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU jobs of tests/torch/test_cpu_jobs.py, compile seconds, medians; all sides in one run and taken in turn, so that a slow minute hits all.

  cold on ext4         an empty plain directory
  warm local start     the same directory again
  cold on the mount    an empty mount, an empty Redis
  fresh node           a further node, mounted after the first has published

And what lies in Redis then, beside what PyTorch's own Redis cache keeps for the same job.
  bench_torch.py [--repeat N] [--torch 2.15]
"""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support" / "python"))

from inductorfs_testing import compare, places  # noqa: E402
from inductorfs_testing.fixtures import Cluster  # noqa: E402

JOBS = places.WORKLOADS / "cpu_jobs.py"
REDIS_CLIENT = "redis==6.4.0"
LIMITS = {"fresh node / warm local start": 1.15, "cold on the mount / on ext4": 1.05,
          "bytes in Redis / PyTorch's own": 0.40}


def redis_client():
    """PyTorch's own cache wants the redis package: in a directory beside the environments, not in them."""
    root = Path(os.environ.get("INDUCTORFS_VENVS") or
                Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inductorfs")
    target = root / f"redis-client-{hashlib.sha256(REDIS_CLIENT.encode()).hexdigest()[:12]}"
    if not (target / "redis").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
                        "--target", target, REDIS_CLIENT], check=True, stdin=subprocess.DEVNULL)
    return target


def one_round(version, times, sizes):
    with Cluster(torch=version) as cluster:
        plain = cluster.node("plain", backing="directory")
        times["cold on ext4"].append(plain.run(JOBS).json["compile_seconds"])
        times["warm local start"].append(plain.run(JOBS).json["compile_seconds"])
        a = cluster.node("a")
        cold = a.run(JOBS).json
        a.sync(120)
        times["cold on the mount"].append(cold["compile_seconds"])
        times["warm on the mount"].append(a.run(JOBS).json["compile_seconds"])
        b = cluster.node("b")
        fresh = b.run(JOBS).json
        assert fresh["counters"].get("inductor.fxgraph_cache_hit") == 4, fresh
        times["fresh node"].append(fresh["compile_seconds"])
        times["fresh node, second start"].append(b.run(JOBS).json["compile_seconds"])
        sizes.append(redis_bytes(cluster, a))


def redis_bytes(cluster, node):
    """Bytes by kind: what the precompiled header takes is told by its digest, which is in the blob's key."""
    digests = []
    for name in compare.names(node.cache / "precompiled_headers"):
        if name.endswith(".gch"):
            digest = os.getxattr(node.cache / "precompiled_headers" / name, "user.inductorfs.digest").decode().strip("\0")
            digests += [digest.encode(), bytes.fromhex(digest)]
    found = {"blobs": 0, "precompiled header": 0, "index and log": 0, "keys": 0}
    for key in cluster.redis.keys():
        found["keys"] += 1
        size = cluster.redis.size_of(key)
        if cluster.redis.command("TYPE", key) != b"string":
            found["index and log"] += size
        elif any(digest in key for digest in digests):
            found["precompiled header"] += size
        else:
            found["blobs"] += size
    return found


def pytorchs_own(version):
    """What torch's own Redis cache holds after the same jobs, and what a fresh node takes with it."""
    with Cluster(torch=version) as cluster:
        environment = {"TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": 1, "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": 1,
                       "TORCHINDUCTOR_REDIS_URL": cluster.redis.url, "PYTHONPATH": redis_client()}
        cluster.node("a", backing="directory").run(JOBS, **environment).json
        keys = cluster.redis.keys()
        size = sum(cluster.redis.size_of(key) for key in keys)
        second = cluster.node("b", backing="directory").run(JOBS, **environment).json
        return {"bytes": size, "keys": len(keys), "fresh node seconds": second["compile_seconds"],
                "counters": second["counters"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--torch", default="2.15")
    arguments = parser.parse_args()
    times = {name: [] for name in ("cold on ext4", "warm local start", "cold on the mount", "warm on the mount",
                                   "fresh node", "fresh node, second start")}
    sizes = []
    for number in range(arguments.repeat):
        one_round(arguments.torch, times, sizes)
        print(f"round {number + 1}: " + json.dumps({name: all_[-1] for name, all_ in times.items()}), flush=True)
    own = pytorchs_own(arguments.torch)
    median = {name: statistics.median(values) for name, values in times.items()}
    ours = sizes[-1]
    shown = ours["blobs"] + ours["index and log"]
    ratios = {"fresh node / warm local start": median["fresh node"] / median["warm local start"],
              "cold on the mount / on ext4": median["cold on the mount"] / median["cold on ext4"],
              "bytes in Redis / PyTorch's own": shown / own["bytes"]}
    for name, value in median.items():
        print(f"{name:28} {value:8.2f} s   of {sorted(times[name])}")
    print(f"{'fresh node, PyTorchs own':28} {own['fresh node seconds']:8.2f} s   {own['counters']}")
    print(f"bytes in Redis: {json.dumps(ours)}; PyTorch's own: {own['bytes']} in {own['keys']} keys")
    total = shown + ours["precompiled header"]
    print(f"the precompiled header is {ours['precompiled header']} of {total} bytes, {ours['precompiled header'] / total:.0%}")
    for name, value in ratios.items():
        print(f"{name:32} {value:6.3f}   at most {LIMITS[name]}{'' if value <= LIMITS[name] else '   OVER'}")
    print(json.dumps({"medians": median, "ratios": ratios, "redis": ours, "own": own["bytes"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

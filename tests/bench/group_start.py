# SPDX-License-Identifier: Apache-2.0
"""Starts of a real torch job (tests/torch/workloads/cpu_jobs.py): seconds from its first call to its last result, imports not counted, and the loading of a
Mega-Cache counted. Another node has nothing yet but what the side in question brings: a copied directory, PyTorch's own Redis cache, a file of
torch.compiler.save_cache_artifacts(), or our mount. Each such start must take every graph from its cache."""
import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.processes import wait_until
from suite import order
from table import Table

REDIS_CLIENT = "redis==6.4.0"
PLAIN, COPIED, REDIS, MEGA, OURS = "plain directory", "copied directory", "PyTorch's Redis", "Mega-Cache", "ours"
JOBS = places.WORKLOADS / "cpu_jobs.py"
GRAPHS = {"train": 2, "inference": 1, "dynamic": 1}
AIMS = {"cold": 1.03, "warm": 1.05, "first": 1.05, "bytes": 0.20}
NAMES = {"cold": "cold start", "warm": "warm start on the same host", "first": "first start on another node", "next": "the next start there",
         "bytes": "bytes in the server without the precompiled header"}


def redis_client():
    """PyTorch's own cache wants the redis package: in a directory beside the environments, not in them."""
    root = Path(os.environ.get("INDUCTORFS_VENVS") or
                Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inductorfs")
    target = root / f"redis-client-{hashlib.sha256(REDIS_CLIENT.encode()).hexdigest()[:12]}"
    if not (target / "redis").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--no-input",
                        "--target", target, REDIS_CLIENT], check=True, stdin=subprocess.DEVNULL)
    return target


def redis_bytes(cluster, node):
    """Without the precompiled header, which is told by its digest: that is in the blob's key."""
    headers = []
    for name in compare.names(node.cache / "precompiled_headers"):
        if name.endswith(".gch"):
            digest = os.getxattr(node.cache / "precompiled_headers" / name, "user.inductorfs.digest").decode().strip("\0")
            headers += [digest.encode(), bytes.fromhex(digest)]
    return sum(cluster.redis.size_of(key) for key in cluster.redis.keys() if not any(digest in key for digest in headers))


class Starts:
    """The nodes of all sides, and two clusters: ours, and the server of PyTorch's cache. Use as a context."""

    def __init__(self, plan):
        self.plan, self._stack, self._number = plan, contextlib.ExitStack(), 0
        self._graphs = sum(GRAPHS[name] for name in plan.jobs.split(","))

    def __enter__(self):
        self.cluster = self._stack.enter_context(Cluster(torch=self.plan.torch, patient=True, declared=True))
        self._own = self._stack.enter_context(Cluster(torch=self.plan.torch, declared=True))
        self._saved = self.cluster.directory / "saved"
        self._environment = {"TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": 1, "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": 1,
                             "TORCHINDUCTOR_REDIS_URL": self._own.redis.url, "PYTHONPATH": redis_client()}
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _run(self, node, *more, warm=True, **environment):
        """Seconds."""
        told = node.run(JOBS, "--jobs", self.plan.jobs, *more, **self.plan.environment, **environment).json
        hits = told["counters"].get("inductor.fxgraph_cache_hit", 0)
        if hits != (self._graphs if warm else 0):
            raise SystemExit(f"bench: node {node.name} took {hits} of {self._graphs} graphs from a cache: {told['counters']}")
        return told["compile_seconds"] + told.get("load_seconds", 0)

    def _fresh(self, cluster, backing):
        self._number += 1
        return cluster.node(f"n{self._number}", backing=backing)

    def cold(self, table):
        row = table.row(NAMES["cold"], aim=AIMS["cold"])
        self.plan.phase("cold starts")
        self._plain = self.cluster.node("plain", backing="directory")
        row.add(PLAIN, self._run(self._plain, "--save", self._saved, warm=False))
        self._plain.sync()
        self._a = self.cluster.node("a", backing="mount")
        row.add(OURS, self._run(self._a, warm=False))
        self._a.sync(300)
        wait_until(lambda: self._a.counters().get("remote.gathered_blobs"), 60, "the artefacts of the start to be gathered")
        row.add(REDIS, self._run(self._own.node("a", backing="directory"), warm=False, **self._environment))
        size = table.row(NAMES["bytes"], unit="kB", other=REDIS, aim=AIMS["bytes"])
        size.add(REDIS, sum(self._own.redis.size_of(key) for key in self._own.redis.keys()) / 1e3)
        size.add(OURS, redis_bytes(self.cluster, self._a) / 1e3)

    def _elsewhere(self, side):
        """The first start on another node, and the next one there. A directory of the second cluster is empty: nothing was copied there."""
        if side == REDIS:
            return self._run(self._fresh(self._own, "directory"), **self._environment), None
        if side == MEGA:
            return self._run(self._fresh(self._own, "directory"), "--load", self._saved), None
        node = self._fresh(self.cluster, "directory" if side == COPIED else "mount")
        return self._run(node), self._run(node)

    def round(self, number, slow, table):
        """`slow`: with the sides that compile C++ code again."""
        self.plan.phase(f"warm starts, round {number + 1}")
        rows = {what: table.row(NAMES[what], aim=AIMS.get(what)) for what in ("warm", "first", "next")}
        for side in order((PLAIN, OURS, COPIED, "elsewhere", *((REDIS, MEGA) if slow else ())), number):
            if side == PLAIN:
                seconds = self._run(self._plain)
                for row in rows.values():
                    row.add(PLAIN, seconds)
            elif side == OURS:
                rows["warm"].add(OURS, self._run(self._a))
            else:
                first, following = self._elsewhere(side)
                name = OURS if side == "elsewhere" else side
                rows["first"].add(name, first)
                if following is not None:
                    rows["next"].add(name, following)


def measure(plan):
    table = Table("Starts of a torch job", "s", OURS, PLAIN)
    table.notes.append(f"The {PLAIN} stands for a warm start on the host that has compiled. PyTorch's Redis cache and the Mega-Cache hold no binaries: C++ "
                       "code is compiled again.")
    with Starts(plan) as starts:
        starts.cold(table)
        for number in range(plan.pick(1, 1, 2)):
            starts.round(number, number == 0, table)
    return table

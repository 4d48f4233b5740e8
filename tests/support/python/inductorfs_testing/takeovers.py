# SPDX-License-Identifier: Apache-2.0
"""What tests of takeovers and upgrades share."""
import time

from . import compare
from .processes import wait_until

# A worker that lived less counts as one that does not last (Core::kHealthy).
HEALTHY = 0.15


def healthy(node, old):
    """The next worker, when it has served for long enough that its end is no part of a series."""
    pid = node.next_worker(old)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > HEALTHY, what="some age of the worker")
    return pid


def no_errors(load):
    results = load.finish()
    assert [result["errors"] for result in results] == [[] for _ in results]
    return results


def takeover(node):
    return node.status()["takeover"]


def nothing_is_left(node):
    assert compare.mounts_below(node.root) == []
    wait_until(lambda: not node.processes(), 20, "the daemon's end")


def in_use(cluster, node):
    """Neither a check nor a second daemon gets the store."""
    other = cluster.node(f"other {len(cluster._nodes)}", start=False)
    second = other.cli("mount", other.cache, "--store", node.store, *cluster.options())
    for done in (second, node.cli("check", "--store", node.store, "--repair")):
        assert done.code == 1 and "in use by process" in done.err and done.err.count("\n") == 1, done
    assert compare.mounts_below(other.root) == []

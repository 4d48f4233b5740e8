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

# SPDX-License-Identifier: Apache-2.0
"""torch in a container whose mount is served by a daemon in another one, which the kernel tells pid 0 for each request of the job."""
import contextlib
import os

import pytest
from inductorfs_testing import places
from inductorfs_testing.containers import sidecar
from inductorfs_testing.fixtures import Cluster, lack

JOB = places.WORKLOADS / "one_kernel.py"
# The interpreter in namespaces of its own.
CONTAINED = """#!/bin/sh
exec unshare --mount --pid --fork --kill-child --propagation private sh -c 'mount -t proc none /proc && exec "$@"' sh {python} "$@"
"""


@pytest.fixture(scope="module")
def runs():
    """The same job on two nodes. The daemon of the first one has the facts by a file from the image of the job, that of the second one
    learns them from its own image."""
    if os.geteuid() != 0:
        lack("namespaces: root only")
    with Cluster(torch="2.15", patient=True) as cluster, contextlib.ExitStack() as stack:
        def pod(name, *options):
            node = cluster.node(name, start=False, declared=True)  # as docs/containers.md has it
            node.enter = stack.enter_context(sidecar(node.root))
            stack.callback(node.stop)
            node.start("--writers", "pod", *options)
            contained = node.root / "python-in-a-container"
            contained.write_text(CONTAINED.format(python=cluster.python))
            contained.chmod(0o755)
            node.python = contained
            return node

        told = cluster.node("image", start=False).cli("fingerprint", "--json", "--python", cluster.python)
        assert told.code == 0, told
        facts = cluster.directory / "facts.json"
        facts.write_text(told.out)
        a, b = pod("a", "--fingerprint", facts), pod("b")
        cold = a.run(JOB).json
        synced = a.cli("sync", a.cache, "--timeout", "60", seconds=70)
        b.catch_up(a)
        warm = b.run(JOB).json
        yield {"a": a, "b": b, "cold": cold, "warm": warm, "synced": synced}


def test_what_the_first_job_compiles_is_shared(runs):
    assert runs["cold"]["counters"]["inductor.fxgraph_cache_miss"] == 1
    assert (runs["synced"].code, runs["synced"].err) == (0, ""), runs["synced"]
    assert runs["a"].counters()["writers.other_namespace"] > 0


def test_the_second_job_compiles_nothing(runs):
    counters = runs["warm"]["counters"]
    assert counters["inductor.fxgraph_cache_hit"] == 1 and "inductor.fxgraph_cache_miss" not in counters, counters
    assert [call for call in runs["b"].compilers.calls() if call[0] not in ("query", "preprocess")] == []
    assert runs["warm"]["digest"] == runs["cold"]["digest"]

# SPDX-License-Identifier: Apache-2.0
"""What the storms share. INDUCTORFS_CHAOS_SECONDS: how long each lasts. INDUCTORFS_CHAOS_SEED: repeats the faults of a run (not
its timing)."""
import os
import random

import pytest
from inductorfs_testing.chaos import Chaos, make_cluster
from inductorfs_testing.processes import wait_until

SECONDS = float(os.environ.get("INDUCTORFS_CHAOS_SECONDS", 20))
SEED = int(os.environ.get("INDUCTORFS_CHAOS_SEED", random.randrange(1_000_000)))
# Each node keeps all that it wrote: long storms write slower, so that the stores stay at some GiB.
PAUSE = max(0.01, SECONDS / 600 * 0.05)


@pytest.fixture
def chaos():
    with make_cluster() as cluster:
        made = Chaos(cluster, SEED, PAUSE)
        try:
            yield made
        finally:
            made.close()


def run_storm(chaos, seconds, server_faults, sets_may_go=False):
    """The workload under faults, and all that must hold then."""
    print(f"\nINDUCTORFS_CHAOS_SEED={SEED}", flush=True)
    chaos.work(sets_may_go)
    wait_until(lambda: all(chaos.own(node) for node in chaos.nodes), 30, "the first artefacts")
    try:
        chaos.storm(seconds, server_faults)
        chaos.calm()
    finally:
        chaos.rest()
        print(chaos.report(), flush=True)
    broken = chaos.broken()
    assert not broken, f"{len(broken)} broken promises:\n" + "\n".join(map(str, broken[:20])) + \
        "\nfaults:\n" + "\n".join(chaos.told[-60:])
    names, kernels = chaos.check_afterwards()
    print(f"{names} names and {kernels} kernels were acknowledged and are everywhere", flush=True)
    assert names > 0


@pytest.fixture
def storm():
    """Of so many seconds."""
    return lambda chaos, *faults, share=1.0, **keywords: run_storm(chaos, SECONDS * share, list(faults), **keywords)

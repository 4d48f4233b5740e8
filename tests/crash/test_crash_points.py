# SPDX-License-Identifier: Apache-2.0
"""A process is killed at each durable step of tests/crash/manifest.txt, and the next one keeps every promise: what was
acknowledged is there byte for byte, what was queued reaches the cluster, nothing half-written is visible, the store is
sound. A step that the workload does not come by is a failure too."""
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lint"))

import check_fail_points  # noqa: E402

# Those of a takeover need a mount: tests/mount/test_takeover_points.py.
POINTS = sorted(point for point in check_fail_points.read_manifest(Path(__file__).with_name("manifest.txt"))[0]
                if not point.startswith("takeover."))
# Steps that are taken often, in the middle of other work too.
OFTEN = ("catalog.committed", "data.written", "mark.written", "name.created", "publish.sent", "queue.added", "queue.removed",
         "rename.file", "seal.adopted", "seal.marked", "seal.queued", "set.moved", "store.installed", "store.linked")


def killed_at(crashing, point):
    done = crashing.run("work", fail_point=point)
    assert done.code == -signal.SIGKILL, f"{point} was never reached: exit code {done.code}\n{done.out}{done.err}"
    # The workload itself has damaged the catalog there, and the kill comes before it is made anew.
    damaged = ["catalog.sqlite"] if point == "catalog.aside" else []
    assert [finding["path"] for finding in crashing.check()] == damaged, "the store as the kill left it"
    crashing.run("verify")
    assert crashing.check() == [], "the store after the next life"


def test_the_workload_ends_without_a_kill(crashing):
    crashing.run("work")
    crashing.run("verify")
    assert crashing.check() == []


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(crashing, point):
    killed_at(crashing, point)


@pytest.mark.parametrize("nth", [3, 8])
@pytest.mark.parametrize("point", OFTEN)
def test_killed_in_the_middle(crashing, point, nth):
    killed_at(crashing, f"{point}:{nth}")


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith(("recovery.", "store.", "catalog."))])
def test_killed_again_while_it_starts(crashing, point):
    """The next life ends in the middle of making sense of what the first one left."""
    crashing.run("work", fail_point="seal.queued:5")
    crashing.run("verify", fail_point=point)
    crashing.run("verify")
    assert crashing.check() == []

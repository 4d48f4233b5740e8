# SPDX-License-Identifier: Apache-2.0
"""The host loses power. strace records what a run did to the files of its store; of what was not synced, chance decides
what is on the disk (inductorfs_testing/disk_images.py), the same for the same seed. The next start, in another boot, must
show nothing that is torn, open its catalog, and bring to the cluster what it still has."""
import os
import re
import shutil
from pathlib import Path

import pytest
from inductorfs_testing.disk_images import KINDS, after_power_cut
from inductorfs_testing.fixtures import lack
from inductorfs_testing.recording import STRACE, Recorder

SEEDS = int(os.environ.get("INDUCTORFS_POWER_CUTS", "4"))
FIRST_SEED = int(os.environ.get("INDUCTORFS_POWER_CUT_SEED", "0"))
# Where the power goes: in the middle of each kind of work, with much that is not synced.
MOMENTS = ("name.linked", "seal.queued:2", "queue.added:4", "store.installed:5", "set.moved:2", "publish.sent:6", "unshare.renamed",
           "copy.named", "hide.marked", "merge.adopted", "stale.kept", "store.synced", "view.marked_clean", "recovery.marked:2",
           "evict.dropped", "pack.dropped", "pack.freed:2", "recovery.removed", "stale.removed")
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"


class Cut:
    """A recorded run, and the cluster as it was at its end."""

    def __init__(self, crashing, moment):
        self.crashing, log = crashing, crashing.root / "calls"
        crashing.run("work", fail_point=moment, before=[*STRACE, "-o", log])
        self.recording = Recorder(crashing.store).read(log)
        self._keys = [(key, crashing.redis.command("PTTL", key), crashing.redis.command("DUMP", key))
                      for key in crashing.redis.keys()]
        log.unlink()

    def start_on(self, image):
        """What the next start finds wrong."""
        crashing = self.crashing
        shutil.rmtree(crashing.store)
        image.put(crashing.store)
        for marker in (crashing.store / "state", crashing.store / "files" / "state"):
            if marker.exists():
                marker.write_bytes(marker.read_bytes().replace(BOOT.encode(), OTHER_BOOT.encode()))
        crashing.redis.command("FLUSHALL")
        for key, lifetime, value in self._keys:
            crashing.redis.command("RESTORE", key, max(0, lifetime), value)
        done = crashing.run("verify-cut", fail_point="none.armed")
        return "" if done.code == 0 else f"exit code {done.code}: {done.out}{done.err}"


def test_a_recording_that_is_carried_out_whole_is_what_the_program_left(crashing):
    """The recorder misses nothing: with every step the image equals the directory."""
    if not shutil.which("strace"):
        lack("strace is missing (scripts/deps installs it)")
    log = crashing.root / "calls"
    crashing.run("work", fail_point="merge.adopted", before=[*STRACE, "-o", log])
    recording = Recorder(crashing.store).read(log)
    recording.steps.append(type(recording.steps[0])("sync", "all"))
    after_power_cut(recording, "ordered", 0).put(crashing.root / "image")

    def files(top):
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*")
                if path.is_file() and not path.is_symlink() and not path.name.endswith("-shm")}

    real, made = files(crashing.store), files(crashing.root / "image")
    assert sorted(real) == sorted(made)
    assert [name for name in real if real[name] != made[name]] == []
    marks = {name: sorted(os.listxattr(crashing.store / name)) for name in real}
    assert marks == {name: sorted(os.listxattr(crashing.root / "image" / name)) for name in made}


@pytest.mark.parametrize("moment", MOMENTS)
def test_power_cut(crashing, moment):
    if not shutil.which("strace"):
        lack("strace is missing (scripts/deps installs it)")
    cut = Cut(crashing, moment)
    assert any(step.kind == "sync" for step in cut.recording.steps)
    broken = {}
    for kind in KINDS:
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
            if what := cut.start_on(after_power_cut(cut.recording, kind, f"{moment} {seed}")):
                broken[f"{kind} {seed}"] = re.sub(r"\n+", "; ", what)
    assert not broken, "\n".join(f"{image}: {what}" for image, what in broken.items())

# SPDX-License-Identifier: Apache-2.0
"""The host loses power. strace records what a run did to the files of its store; of what was not synced, chance decides
what is on the disk (inductorfs_testing/disk_images.py), the same for the same seed. The next start, in another boot, must
show nothing that is torn, open its catalog, and bring to the cluster what it still has."""
import itertools
import os
import re
import shutil
from pathlib import Path

import pytest
from inductorfs_testing.disk_images import KINDS, after_power_cut
from inductorfs_testing.fixtures import lack
from inductorfs_testing.recording import STRACE, Recorder, Step

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


def contents(top):
    """Of each file its bytes and the names of its marks."""
    return {str(path.relative_to(top)): (path.read_bytes(), sorted(os.listxattr(path))) for path in top.rglob("*")
            if path.is_file() and not path.is_symlink() and not path.name.endswith("-shm")}


def what_it_may_have_left(recording, place):
    """What is there when every step has been carried out, and of those under way some."""
    steps, sync = recording.steps, Step("sync", "all")
    for count in range(len(recording.under_way) + 1):
        for some in itertools.combinations(recording.under_way, count):
            shutil.rmtree(place, ignore_errors=True)
            recording.steps = [*steps, *some, sync]
            after_power_cut(recording, "ordered", 0).put(place)
            yield contents(place)
    recording.steps = steps


def test_a_recording_that_is_carried_out_whole_is_what_the_program_left(crashing):
    """The recorder misses nothing: with every step the image equals the directory."""
    if not shutil.which("strace"):
        lack("strace is missing (scripts/deps installs it)")
    log = crashing.root / "calls"
    crashing.run("work", fail_point="merge.adopted", before=[*STRACE, "-o", log])
    recording, real = Recorder(crashing.store).read(log), contents(crashing.store)
    different = []
    for made in what_it_may_have_left(recording, crashing.root / "image"):
        different = [name for name in {*real, *made} if real.get(name) != made.get(name)]
        if not different:
            break
    assert not different, f"{different}, with {recording.under_way}"


@pytest.mark.parametrize("end", [") = ?", " <unfinished ...>"])
def test_a_write_that_a_kill_cuts_short_is_there_or_not(tmp_path, end):
    """The kernel may have written before strace could say so: its last line of the thread has no result."""
    def quoted(text):
        return "".join(f"\\x{byte:02x}" for byte in os.fsencode(text))

    log = tmp_path / "calls"
    log.write_text(f'7  openat(AT_FDCWD<{quoted("/")}>, "{quoted(f"{tmp_path}/store/data")}", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3\n'
                   f'8  pwrite64(3<{quoted(f"{tmp_path}/store/data")}>, "{quoted("late")}", 4, 0{end}\n7  close(4) = 0\n')
    recording = Recorder(tmp_path / "store").read(log)
    assert list(what_it_may_have_left(recording, tmp_path / "image")) == [{"data": (b"", [])}, {"data": (b"late", [])}]


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

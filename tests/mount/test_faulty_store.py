# SPDX-License-Identifier: Apache-2.0
"""One call of the disk below a store fails, once: nobody sees other bytes, nothing that was acknowledged goes, and nothing is stuck.

INDUCTORFS_FAULTY_CALLS=all: each call of the workload in a run of its own, not a sample. INDUCTORFS_FAULTY_CALLS="write 160 28": this one."""
import errno
import json
import os
from concurrent.futures import ProcessPoolExecutor

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.faulty_store import FaultyDisk, Told, Writer, in_child, look
from inductorfs_testing.mounts import QuickCluster
from inductorfs_testing.processes import run, wait_until

WANTED = os.environ.get("INDUCTORFS_FAULTY_CALLS", "")
TOGETHER = 2 * (os.cpu_count() or 1)
GOLDEN = 0.618  # of the calls of a kind between one fault and the next
READS = dict.fromkeys(("lookup", "getattr", "readlink", "opendir", "readdir", "getxattr", "listxattr", "statfs", "close"), (errno.EIO,))
CHANGES = dict.fromkeys(("mkdir", "rename", "link", "symlink", "unlink", "rmdir", "truncate", "chmod", "chown", "utimens", "setxattr", "removexattr", "fallocate", "fsync",
                         "fsyncdir"), (errno.EIO, errno.ENOSPC))
FAULTS = {**READS, **CHANGES, "open": (errno.EIO, errno.EROFS), "read": (errno.EIO, "short"), "create": (errno.EIO, errno.ENOSPC, errno.EROFS),
          "write": (errno.EIO, errno.ENOSPC, errno.EROFS, "short")}
# Calls that had more effect once: (kind, number, how, the end of the path).
KNOWN = [("open", number, errno.EIO, "__grp__k.json") for number in (3, 6, 9)] + [("getattr", number, errno.EIO, "k.ttir") for number in (4, 5, 6)] + \
    [("chown", 1, errno.EIO, ".one.tmp")]


class Trial:
    """A workload on two nodes, of which `a` has the disk. A call that fails shows where it was made, and nowhere else."""

    def __init__(self, cluster, disk):
        self.cluster, self.disk = cluster, disk
        self.told, self.others, self.step = Told(), Told(), "before"
        self.b = cluster.quick("b")
        self.a = cluster.node("a", start=False)
        self.a.store = disk.path / "store"

    def run(self):
        a, b = self.a, self.b
        self.mount("mount")
        self.write("one")
        self.look("look")
        self.sync("sync")
        self.begin("of another node")
        self.others, refused = in_child(Writer(b.cache, "bees", self.others).write_all)
        assert not refused
        self.others = self.others.shared()
        b.sync()
        wait_until(lambda: not self.found(self.others)["absent"], 60, "what the other node made")
        self.begin("takeover")
        a.next_worker(a.kill_worker(), seconds=30)
        self.look("look after the takeover")
        self.write("two")
        self.sync("sync after the takeover")
        self.unmount("unmount")
        self.mount("mount again")
        self.look("look after the mount")
        self.write("three")
        self.begin("kill")
        a.kill_daemon()
        self.mount("mount after the kill")
        self.look("look after the kill")
        self.sync("sync at the end", last=True)
        self.unmount("unmount at the end")

    def begin(self, step):
        self.step, self._before = step, self.disk.hit()

    def hit_now(self):
        """Since begin()."""
        return self.disk.hit() != self._before

    def mount(self, step):
        self.begin(step)
        words = ["mount", self.a.cache, "--store", self.a.store, "--log", self.a.log, "--remote", self.cluster.redis.url,
                 *self.cluster.options("--crash-limit", "0", "--lookup-patience", "3000")]
        done = self.a.cli(*words, seconds=30)
        if done.code != 0 and self.hit_now():
            assert done.err.strip(), "a mount that fails says why"
            done = self.a.cli(*words, seconds=30)
        assert done.code == 0 and compare.is_mounted(self.a.cache), done
        self.a.status()

    def unmount(self, step):
        self.begin(step)
        self.a.status()
        done = self.a.cli("unmount", self.a.cache, seconds=30)
        assert done.code == 0 or self.hit_now(), done
        assert not compare.is_mounted(self.a.cache)
        wait_until(lambda: not self.a.processes(), 60, "the daemon's end")
        self.begin(f"check after {step}")
        words = [places.program(), "check", "--store", self.a.store]
        sound = run(words, seconds=30)
        assert sound.code == 0 or self.hit_now() and run(words, seconds=30).code == 0, sound

    def write(self, tag):
        self.begin(f"write {tag}")
        self.told, refused = in_child(Writer(self.a.cache, tag, self.told).write_all)
        assert len(refused) <= self.hit_now(), refused

    def found(self, told):
        found = in_child(look, self.a.cache, told)
        assert not found["wrong"], found
        assert len(found["failed"]) <= self.hit_now(), found
        return found

    def look(self, step):
        self.begin(step)
        for told in (self.told, self.others):
            absent = self.found(told)["absent"]
            assert not absent or self.hit_now(), absent
            if absent:
                absent = self.found(told)["absent"]
            assert not absent, f"absent for ever: {absent}"

    def sync(self, step, last=False):
        self.begin(step)

        def synced():
            done = self.a.cli("sync", self.a.cache, "--timeout", 20, "--json", seconds=40)
            return json.loads(done.out) if done.code in (0, 3) else None

        report = wait_until(synced, 60, "a sync")
        if last or not report["kept"]:
            shared = self.told.shared()
            wait_until(lambda: not self.lacks(shared), 60, "all that was acknowledged on the other node")

    def lacks(self, told):
        found = in_child(look, self.b.cache, told)
        assert not found["wrong"] and not found["failed"], found
        return found["absent"]


def trial(kind="", number=0, how="", end=""):
    """(how many calls of each kind there were, what failed: empty when no call had this number, what broke)"""
    with QuickCluster() as cluster, FaultyDisk(cluster.directory / "disk") as disk:
        made = Trial(cluster, disk)
        disk.fail(kind, number, how, end)
        try:
            made.run()
            broken = ""
        except Exception as error:
            broken = f"{kind} {number} {how} {end}: in the step {made.step!r}: {type(error).__name__}: {error}\n{disk.hit()}{made.a.log_tail(60)}"
        return disk.counts(), disk.hit(), broken


def together(orders):
    """trial() of each; its processes wait more than they work."""
    with ProcessPoolExecutor(TOGETHER) as workers:
        return list(workers.map(trial, *zip(*orders, strict=True)))


def chosen(counts):
    """Each kind in each way, at calls that lie far from each other; or each call once, its ways by turns."""
    if len(WANTED.split()) == 3:
        kind, number, how = WANTED.split()
        return [(kind, int(number), how, "")]
    if WANTED == "all":
        return [(kind, number, FAULTS[kind][number % len(FAULTS[kind])], "") for kind, count in counts.items() for number in range(1, count + 1)]
    pairs = [(kind, how) for kind in sorted(counts) for how in FAULTS[kind]]
    return [(kind, 1 + int(counts[kind] * (index * GOLDEN % 1)), how, "") for index, (kind, how) in enumerate(pairs)]


@pytest.mark.usefixtures("root")
def test_one_call_of_the_disk_fails():
    counts, _, broken = trial()
    assert not broken, broken
    assert set(counts) <= set(FAULTS), "a kind of call that no fault is for"
    orders = chosen(counts) + ([] if WANTED else KNOWN)
    told = together(orders)
    assert not any(broken for _, _, broken in told), "\n\n".join(broken for _, _, broken in told if broken)
    hit = sum(bool(hit) for _, hit, _ in told)
    print(f"{len(orders)} calls failed, {hit} of them were made", flush=True)
    assert hit > 0.8 * len(orders) or WANTED, "the workload makes other calls each time"

# SPDX-License-Identifier: Apache-2.0
"""A worker that is killed between the effect of a request and its answer: the request is answered by the next worker as it would
have been by the first. And one that is killed at a step beside requests, or in the middle of its own takeover, while a job
works: the job sees nothing, and what it wrote reaches the cluster. All points of tests/crash/manifest.txt for which a mount is
needed, or makes a difference."""
import ctypes
import os
import sys
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, mounts
from inductorfs_testing.load import Load
from inductorfs_testing.processes import wait_until

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lint"))

import check_fail_points  # noqa: E402

MANIFEST = check_fail_points.read_manifest(Path(__file__).resolve().parents[1] / "crash" / "manifest.txt")[0]

RENAME_EXCHANGE = 2


def exchange(one, other):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def create(root):
    descriptor = os.open(root / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)
    os.write(descriptor, b"bytes")
    os.close(descriptor)
    assert (root / "new").read_bytes() == b"bytes" and (root / "new").stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        os.open(root / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR)


def make_directory(root):
    (root / "made").mkdir()
    with pytest.raises(FileExistsError):
        (root / "made").mkdir()
    assert list((root / "made").iterdir()) == []


def make_symlink(root):
    (root / "to").symlink_to("old")
    assert os.readlink(root / "to") == "old" and (root / "to").read_bytes() == b"old bytes"


def make_link(root):
    os.link(root / "old", root / "second")
    assert (root / "old").stat().st_nlink == 2 and os.path.samefile(root / "old", root / "second")
    with open(root / "second", "ab") as file:
        file.write(b", more")
    assert (root / "old").read_bytes() == b"old bytes, more"


def remove_open_file(root):
    with open(root / "old", "rb") as file:
        os.unlink(root / "old")
        assert not (root / "old").exists()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert file.read() == b"old bytes" and os.fstat(file.fileno()).st_nlink == 0


def remove_directory(root):
    (root / "empty").rmdir()
    assert not (root / "empty").exists()
    with pytest.raises(FileNotFoundError):
        (root / "empty").rmdir()


def rename_over(root):
    with open(root / "other", "rb") as replaced:
        os.rename(root / "old", root / "other")
        assert not (root / "old").exists() and (root / "other").read_bytes() == b"old bytes"
        assert replaced.read() == b"other bytes"


def rename_directory(root):
    os.rename(root / "full", root / "moved")
    assert not (root / "full").exists() and (root / "moved" / "inner").read_bytes() == b"inner bytes"


def exchange_files(root):
    exchange(root / "old", root / "other")
    assert (root / "old").read_bytes() == b"other bytes" and (root / "other").read_bytes() == b"old bytes"


POINTS = {
    "name.created": create, "name.directory_made": make_directory, "name.special_made": make_symlink, "name.linked": make_link,
    "name.unlinking": remove_open_file, "name.unlinked": remove_open_file, "name.directory_removed": remove_directory,
    "rename.file": rename_over, "rename.directory": rename_directory, "rename.exchanged": exchange_files,
}


def prepare(root):
    """What the operations work on; before any point is armed."""
    (root / "empty").mkdir(parents=True)
    (root / "full").mkdir()
    for name in ("old", "other"):
        (root / name).write_bytes(f"{name} bytes".encode())
    (root / "full" / "inner").write_bytes(b"inner bytes")


@pytest.fixture
def armed(cluster, tmp_path):
    """A mount whose worker is killed, once, at this point."""
    once = tmp_path / "killed"
    once.touch()  # as if it had been: what prepares the mount goes by

    def mount(point, prepared):
        node = cluster.quick("a", "--crash-limit", "0", environment={"INDUCTORFS_FAIL_POINT": point,
                                                                    "INDUCTORFS_FAIL_POINT_ONCE": str(once)})
        prepared(node.cache / "work")
        node.unmount()
        once.unlink()
        mounts.remount(node, cluster, "--crash-limit", "0")
        return node, once
    return mount


def restarted(node):
    return node.status()["takeover"]["restarts"] == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_request_is_answered_once_and_rightly(armed, point):
    node, once = armed(point, prepare)
    POINTS[point](node.cache / "work")
    assert once.exists(), "the point was not reached"
    wait_until(lambda: restarted(node), what="the takeover")


def two_names(root):
    prepare(root)
    os.link(root / "old", root / "a second name")


def test_one_of_two_names_goes_without_the_other(armed):
    """The one that goes sorts first, as the names of a node do after a takeover."""
    node, once = armed("name.unlinked", two_names)
    root = node.cache / "work"
    with open(root / "old", "rb") as file:
        os.unlink(root / "a second name")
        assert once.exists(), "the point was not reached"
        wait_until(lambda: restarted(node), what="the takeover")
        told = os.fstat(file.fileno())
        assert told.st_nlink == 1 and told.st_size == len(b"old bytes"), told
        assert not (root / "a second name").exists() and file.read() == b"old bytes"
        os.link(root / "old", root / "again")
        os.chmod(root / "old", 0o600)
        assert os.fstat(file.fileno()).st_nlink == 2 and (root / "again").stat().st_mode & 0o777 == 0o600


def test_bytes_of_the_store_stay_though_their_file_is_renamed(armed):
    """Who writes to the file afterwards gets one of his own."""
    name = artefacts.code("sealed")
    node, once = armed("rename.file", lambda root: artefacts.write_atomic(root.parent, name, "text"))
    assert (node.cache / name).read_text() == "text"
    os.rename(node.cache / name, node.cache / "mine")
    assert once.exists(), "the point was not reached"
    wait_until(lambda: restarted(node), what="the takeover")
    with open(node.cache / "mine", "a", encoding="ascii") as file:
        file.write(", more")
    assert (node.cache / "mine").read_text() == "text, more"
    node.unmount()
    done = node.cli("check", "--store", node.store)
    assert done.code == 0, done.out + done.err


# Whose file it is: the cluster's, or one of this host that the store has too.
IN_PLACE = {"copy.early": False, "data.written": False, "unshare.copied": False, "unshare.renamed": False, "copy.written": True, "copy.named": True}


@pytest.mark.parametrize("point", IN_PLACE)
def test_a_file_that_is_written_in_place_stays_the_same_file(cluster, tmp_path, point):
    """For who has it open, too, over this takeover and the next, though the bytes of the store got a copy."""
    node, once = killing_once(cluster, tmp_path, point)
    other, name = cluster.quick("b"), artefacts.code("sealed")
    writer = other if IN_PLACE[point] else node
    text = "text" * (1 << 17) if point == "copy.early" else "text"
    artefacts.write_atomic(writer.cache, name, text)
    writer.sync()
    for reader in (node, other):
        mounts.appears(reader.cache / name)
    with open(node.cache / name, "rb") as held:
        assert held.read() == text.encode()
        with open(node.cache / name, "ab") as file:
            file.write(b", more")
        assert once.exists(), "the point was not reached"
        for restarts in (1, 2):
            wait_until(lambda many=restarts: node.status()["takeover"]["restarts"] == many, what="the takeover")
            os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(held.fileno(), 1 << 20, 0) == (node.cache / name).read_bytes() == text.encode() + b", more"
            assert os.path.samestat(os.fstat(held.fileno()), (node.cache / name).stat())
            if restarts == 1:
                node.next_worker(node.kill_worker())
    assert (other.cache / name).read_bytes() == text.encode()
    assert not [left for orphans in node.store.rglob("orphans") for left in os.listdir(orphans)]
    node.unmount()
    done = node.cli("check", "--store", node.store)
    assert done.code == 0, done.out + done.err


SET_POINTS = ["set.put", "set.put:3", "set.moved", "set.moved:2", "set.moved:4", "set.committed"]


@pytest.mark.parametrize("point", SET_POINTS)
def test_a_set_is_committed_whole(armed, point):
    node, once = armed(point, lambda root: None)
    artefacts.triton_compile(node.cache, "kernel", "one")
    assert once.exists(), "the point was not reached"
    wait_until(lambda: restarted(node), what="the takeover")
    assert artefacts.triton_writers(artefacts.triton_read(node.cache, "kernel")) == {"one"}
    node.sync()


# ---- beside requests, and in the middle of a takeover

STORE_LIMIT = 64 << 20
MOST_KILLS = 40


class Job:
    """Writes artefacts until a point was reached, and knows what it has written. Needs external synchronisation."""

    def __init__(self, node, other, cluster):
        self.node, self.other, self.cluster, self.written, self._turn = node, other, cluster, {}, 0

    def keep(self, path, content):
        self.written[path.relative_to(self.node.cache)] = content.encode()

    def graph(self):
        self._turn += 1
        text = f"value {self._turn}"
        self.keep(artefacts.write_graph(self.node.cache, f"key {self._turn}", text), text)

    def linked(self):
        """An artefact that has a further name, so that the store gets a copy."""
        self._turn += 1
        text = f"linked {self._turn}"
        path = self.node.cache / artefacts.graph(f"linked {self._turn}", text)
        path.parent.mkdir(parents=True)
        temporary = path.parent / f".{os.getpid()}.{self._turn}.tmp"
        temporary.write_text(text)
        os.link(temporary, self.node.cache / f"further {self._turn}")
        temporary.rename(path)
        self.keep(path, text)

    def kernel(self):
        self._turn += 1
        directory = artefacts.triton_compile(self.node.cache, f"kernel {self._turn}", "one")
        for name in artefacts.TRITON_FILES:
            self.keep(directory / name, (directory / name).read_text())

    def too_much(self):
        """More than the store may hold: a set first, which is the oldest then. What is not published is not evicted, and fills
        the store, so each one has its time."""
        self.kernel()
        for _ in range(10):
            self._turn += 1
            name, text = artefacts.code(f"big {self._turn}"), mounts.text(8 << 20, self._turn).decode()
            self.keep(artefacts.write_atomic(self.node.cache, name, text), text)
            wait_until(lambda: str(name) in mounts.published(self.cluster), 20, "the publish")

    def is_on(self, node):
        node.catch_up(self.node)
        for name, content in self.written.items():
            assert (node.cache / name).read_bytes() == content, name


STEPS = {"seal.copied": Job.linked, "seal.group_put": Job.kernel, "evict.dropped": Job.too_much,
         "evict.set_file_dropped": Job.too_much}
# Somebody else's loss, which no job of this node sees: tests/crash/test_crash_points.py.
ELSEWHERE = ("publish.lost_told",)


def killing_once(cluster, tmp_path, point, *more):
    """A mount of which one worker is killed at this point, and the file that says so."""
    once = tmp_path / "killed"
    node = cluster.quick("a", "--crash-limit", "0", *more,
                         environment={"INDUCTORFS_FAIL_POINT": point, "INDUCTORFS_FAIL_POINT_ONCE": str(once)})
    return node, once


def job_saw_nothing(load):
    assert [result["errors"] for result in load.finish()] == [[]]


@pytest.mark.parametrize("point", [point for point in MANIFEST
                                   if point.startswith(("seal.", "publish.", "evict.")) and point not in ELSEWHERE])
def test_a_step_beside_requests_is_made_again(cluster, tmp_path, point):
    node, once = killing_once(cluster, tmp_path, point, *(("--store-limit", STORE_LIMIT) if point.startswith("evict.") else ()))
    job = Job(node, cluster.quick("b"), cluster)
    with Load(node.cache, tmp_path / "load", processes=1) as load:
        load.advance(50)

        def reached():
            STEPS.get(point, Job.graph)(job)
            return once.exists()

        wait_until(reached, 60, "the point")
        wait_until(lambda: restarted(node), what="the takeover")
        job.graph()
        load.advance(50)
        job_saw_nothing(load)
    node.sync()
    job.is_on(node)
    job.is_on(job.other)


@pytest.mark.parametrize("point", [point for point in MANIFEST if point.startswith("takeover.")])
def test_a_takeover_that_is_cut_is_made_by_the_next_worker(cluster, tmp_path, point):
    """The first worker is killed by hand, until a next one dies at the point."""
    node, once = killing_once(cluster, tmp_path, point)
    job = Job(node, cluster.quick("b"), cluster)
    with Load(node.cache, tmp_path / "load", processes=2) as load:
        load.advance(50)
        kills = 0
        while not once.exists():
            kills += 1
            assert kills <= MOST_KILLS, "the point was not reached"
            for write in (job.graph, job.kernel, job.linked):
                write()
            node.next_worker(node.kill_worker())
            load.advance(5)
        wait_until(lambda: node.status()["takeover"]["restarts"] == kills + 1, what="the worker after that")
        job.graph()
        load.advance(50)
        assert [result["errors"] for result in load.finish()] == [[], []]
    node.sync()
    job.is_on(node)
    job.is_on(job.other)

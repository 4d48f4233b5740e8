# SPDX-License-Identifier: Apache-2.0
"""What runs out, or breaks, under a mount: the disk, its inodes, descriptors, Redis for long, the index. A job sees an error of
the local disk where a local disk would give one, a miss elsewhere, and nothing it wrote is lost."""
import contextlib
import errno
import json
import mmap
import os
import re
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, mounts, places
from inductorfs_testing.disks import Ext4, Limited, Tmpfs
from inductorfs_testing.mounts import appears, text
from inductorfs_testing.processes import SANITIZER, run, wait_until
from inductorfs_testing.fixtures import lack

needs_root = pytest.mark.usefixtures("root")
ENTRIES = int(os.environ.get("INDUCTORFS_MANY_ENTRIES", "100000"))


def on_disk(cluster, disk, *more, environment=None, before=()):
    """A node whose store is on this disk."""
    node = cluster.node("a", start=False, environment=environment)
    done = run([*before, places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log,
                "--remote", cluster.redis.url, *cluster.options(*more)], node.env(), seconds=60)
    assert done.code == 0, done.err
    return node


def memory_of(node, what="VmHWM"):
    (pid,) = node.daemons()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what + ":"))


def is_little(size, limit):
    """A sanitizer's shadow is memory of the daemon too, and is several times as much."""
    return SANITIZER is not None or size < limit


def error_of(function):
    with pytest.raises(OSError) as failed:
        function()
    return failed.value.errno


# ---- the disk

@needs_root
def test_inodes_that_run_out_are_enospc_and_come_back(cluster):
    with Tmpfs(cluster.directory / "disk", "size=64m,nr_inodes=300") as disk:
        node = on_disk(cluster, disk)
        kept = artefacts.write_graph(node.cache, "key", "value")
        (node.cache / "own").mkdir()
        made = []

        def fill():
            for index in range(1000):
                (node.cache / "own" / str(index)).write_bytes(b"x")
                made.append(index)

        assert error_of(fill) == errno.ENOSPC
        assert len(made) > 100
        assert all((node.cache / "own" / str(index)).read_bytes() == b"x" for index in made)
        with contextlib.suppress(FileNotFoundError):  # a miss at most: what is published may be evicted for the writer
            assert kept.read_bytes() == b"value"
        for index in made[:50]:
            (node.cache / "own" / str(index)).unlink()
        for index in range(20):
            (node.cache / "own" / f"again {index}").write_bytes(b"y")
        assert appears(kept).read_bytes() == b"value"
        node.sync()
        node.unmount()


@needs_root
def test_what_is_deleted_makes_room_for_the_next_name(cluster):
    """On a local disk the space is there when the last of unlink(2) and close(2) returns; the kernel tells a file system of its
    own only later."""
    with Tmpfs(cluster.directory / "disk", "size=64m,nr_inodes=300") as disk:
        node = on_disk(cluster, disk)
        own, made = node.cache / "own", []
        own.mkdir()

        def fill():
            for index in range(1000):
                (own / str(index)).write_bytes(b"x")
                made.append(own / str(index))

        assert error_of(fill) == errno.ENOSPC
        makers = [Path.mkdir, Path.touch, lambda path: path.symlink_to("elsewhere"), os.mkfifo]
        with open(made[0], "rb") as held:
            made[0].unlink()
            for index, path in enumerate(made[1:101]):
                with open(path, "rb") as file:
                    path.unlink()
                    assert file.read() == b"x", "as of any deleted file"
                makers[index % len(makers)](own / f"again {index}")
            assert held.read() == b"x"
        node.unmount()


@needs_root
def test_what_is_evicted_does_not_stand_for_the_room_of_what_is_deleted(cluster):
    """A blob that is small frees less than a write needs; the rest is what was deleted, and on its way."""
    with Tmpfs(cluster.directory / "disk", "size=16m") as disk:
        node = on_disk(cluster, disk)
        big = node.cache / "big"

        def fill():
            with open(big, "wb", buffering=0) as file:
                for _ in range(100):
                    file.write(b"x" * (1 << 18))

        for index in range(20):
            kept = artefacts.write_graph(node.cache, f"key {index}", "value")
            node.sync()
            with open(kept, "rb"):  # in use: not evicted for what follows
                assert error_of(fill) == errno.ENOSPC
            big.unlink()
            (node.cache / "small").write_bytes(b"x" * (4 << 20))
            (node.cache / "small").unlink()
        node.unmount()


def assert_told(node, disk, error):
    """That nothing can be written there: by status, and by a sync that would have had work."""
    (warning,) = [line for line in node.status()["warnings"] if "cannot be written to" in line]
    assert error in warning and f"{disk.path}/store: " in warning and "dmesg" in warning
    done = node.cli("sync", node.cache, "--timeout", "1")
    assert done.code == 1 and done.out == "", done
    assert "written in place" in done.err or warning in done.err, done.err


@needs_root
def test_a_disk_that_turns_read_only_under_the_mount(cluster):
    writer = cluster.quick("writer")
    theirs = artefacts.write_graph(writer.cache, "theirs", "value of theirs").relative_to(writer.cache)
    writer.sync()
    with Ext4(cluster.directory / "disk") as disk:
        node = on_disk(cluster, disk, "--prefetch", "0")
        own = artefacts.write_atomic(node.cache, "own/file", "mine")
        sealed = artefacts.write_graph(node.cache, "key", "value")
        node.sync()
        appears(node.cache / theirs)
        disk.turn_read_only()

        assert error_of(lambda: (node.cache / "own" / "new").write_bytes(b"x")) == errno.EROFS
        assert error_of(lambda: own.rename(own.with_name("other"))) == errno.EROFS
        assert error_of(own.unlink) == errno.EROFS
        assert own.read_bytes() == b"mine" and sealed.read_bytes() == b"value"
        assert (node.cache / theirs).read_bytes() == b"value of theirs"
        late = artefacts.write_graph(writer.cache, "late", "came later").relative_to(writer.cache)
        writer.sync()
        assert not os.path.lexists(node.cache / late), "there is no place for its bytes: a miss"
        assert_told(node, disk, "Read-only file system")
        node.unmount()


@needs_root
def test_a_disk_that_dies_under_the_mount(cluster):
    with Ext4(cluster.directory / "disk") as disk:
        node = on_disk(cluster, disk)
        own = artefacts.write_atomic(node.cache, "own/file", "mine")
        os.sync()
        with open(own, "rb") as held:
            assert held.read() == b"mine"
            disk.die()
            held.seek(0)
            assert held.read() == b"mine", "the kernel has it"
        assert error_of(lambda: (node.cache / "new").write_bytes(b"x")) == errno.EIO
        assert_told(node, disk, "Input/output error")
        node.unmount()
        again = run([places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log], node.env(), seconds=60)
        check = run([places.program(), "check", "--store", disk.path / "store"], node.env(), seconds=60)
        for done in (again, check):
            assert done.code == 1, done
            assert f"store {disk.path}/store: " in done.err and "Input/output error; " in done.err and "dmesg" in done.err, done.err
    with disk:  # in order again, as after fsck
        done = run([places.program(), "mount", node.cache, "--store", disk.path / "store", "--log", node.log, "--remote",
                    cluster.redis.url, *cluster.options()], node.env(), seconds=60)
        assert done.code == 0, done.err
        assert own.read_bytes() == b"mine"
        node.unmount()


@needs_root
def test_a_quota_that_is_reached_is_enospc_and_what_is_deleted_makes_room(cluster):
    writer = cluster.quick("writer")
    theirs = [artefacts.write_atomic(writer.cache, artefacts.code(f"theirs {index}"), text(1 << 20, index)).relative_to(writer.cache)
              for index in range(4)]
    writer.sync(60)
    with Limited(cluster.directory / "disk", 24) as disk:
        node = on_disk(cluster, disk, "--prefetch", "0")
        kept = artefacts.write_graph(node.cache, "key", "value")
        node.sync()
        own, written = node.cache / "own", []

        def fill():
            with open(own, "wb", buffering=0) as file:
                for index in range(400):
                    block = os.urandom(1 << 18)
                    if file.write(block) != len(block):
                        raise OSError(errno.ENOSPC, "a part of it only")  # as write(2) says it at the border
                    written.append(block)

        assert error_of(fill) == errno.ENOSPC
        assert disk.free() > 64 << 20, "it is the quota"
        (warning,) = node.status()["warnings"]
        assert re.fullmatch("the disk of --store has [0-9.]+ MiB free, but takes no more, as where a quota is reached, so writes fail with "
                            f"ENOSPC: {disk.path}/store: free some space there, raise the quota, or mount with another --store", warning), warning
        assert 8 << 20 < len(written) << 18 < 24 << 20
        assert own.read_bytes()[:len(written) << 18] == b"".join(written)
        late = artefacts.code("late")
        assert error_of(lambda: artefacts.write_atomic(node.cache, late, text(1 << 20))) == errno.ENOSPC
        assert not os.path.lexists(node.cache / late)
        for name in theirs:
            with contextlib.suppress(FileNotFoundError):  # a first touch that finds no room is a miss
                assert (node.cache / name).read_bytes() == (writer.cache / name).read_bytes()
        with contextlib.suppress(FileNotFoundError):  # a miss at most: what is published may be evicted for the writer
            assert kept.read_bytes() == b"value"
        assert node.status()["mountpoint"] == str(node.cache)

        with open(own, "rb") as held:
            own.unlink()
            os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert held.read()[:len(written) << 18] == b"".join(written), "as of any deleted file"
        wait_until(lambda: not node.status()["warnings"], what="room under the quota")
        again = artefacts.write_graph(node.cache, "again", "value of again")
        assert appears(kept).read_bytes() == b"value"
        for name in theirs:
            assert appears(node.cache / name).read_bytes() == (writer.cache / name).read_bytes()
        node.sync(60)
        assert appears(writer.cache / again.relative_to(node.cache)).read_bytes() == b"value of again"
        node.unmount()
        sound = run([places.program(), "check", "--store", disk.path / "store"])
        assert sound.code == 0, sound.out + sound.err


@pytest.mark.parametrize("error", ["EIO", "EDQUOT", "EROFS"])
def test_a_write_that_the_disk_refuses_is_that_error_and_no_more(cluster, error):
    """EDQUOT is told as ENOSPC, as docs/semantics/faults-of-the-disk.md has it."""
    node = cluster.quick("a", environment={"INDUCTORFS_FAIL_POINT": f"disk.write={error}:20"})
    told, written = None, {}
    for index in range(60):
        path = node.cache / f"file {index}"
        try:
            path.write_bytes(b"x" * 1000)
            written[path] = b"x" * 1000
        except OSError as failed:
            told = failed.errno
            break
    assert told == {"EIO": errno.EIO, "EDQUOT": errno.ENOSPC, "EROFS": errno.EROFS}[error]
    assert written and all(path.read_bytes() == content for path, content in written.items())
    assert os.listdir(node.cache)
    assert node.status()["mountpoint"] == str(node.cache)


def test_a_read_that_the_disk_refuses_is_eio(cluster):
    node = cluster.quick("a", environment={"INDUCTORFS_FAIL_POINT": "disk.read=EIO:40"})
    for index in range(100):
        (node.cache / f"file {index}").write_bytes(b"x" * 100)
    told = set()
    for index in range(100):
        path = node.cache / f"file {index}"
        os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            assert os.read(fd, 200) == b"x" * 100
        except OSError as failed:
            told.add(failed.errno)
        finally:
            os.close(fd)
    assert told <= {errno.EIO}
    assert node.status()["mountpoint"] == str(node.cache)


@needs_root
def test_the_floor_of_the_disk_is_kept_and_nothing_in_use_goes(cluster):
    with Tmpfs(cluster.directory / "disk", "size=48m") as disk:
        node = on_disk(cluster, disk, "--store-floor", "16M")
        assert node.status()["store"]["free_floor"] == 16 << 20
        names = [artefacts.write_atomic(node.cache, artefacts.code(f"file {index}"), text(1 << 20, index))
                 for index in range(24)]
        node.sync(60)
        held = names[0]
        content = held.read_bytes()
        with open(held, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            (disk.path / "somebody else's").write_bytes(b"x" * (14 << 20))

            def free():
                state = os.statvfs(disk.path)
                return state.f_bavail * state.f_frsize

            wait_until(lambda: free() >= 16 << 20, 20, "eviction down to the floor")
            # The space is back a moment before it is counted.
            wait_until(lambda: node.status()["store"]["evicted"] > 0, 20, "the count of what was evicted")
            assert mapped[:] == content
            file.seek(0)
            assert file.read() == content
        for index, name in enumerate(names[-3:]):
            assert appears(name).stat().st_size == 1 << 20, index
        node.unmount()


# ---- descriptors and memory

def test_few_descriptors(cluster):
    """A hard limit of 160: files and blobs are opened again when their turn comes."""
    writer = cluster.quick("writer")
    names = [artefacts.write_graph(writer.cache, f"k{index}", f"value {index}").relative_to(writer.cache) for index in range(300)]
    writer.sync(60)
    node = cluster.node("few", start=False)
    done = run(["prlimit", "--nofile=160:160", places.program(), "mount", node.cache, "--store", node.store, "--log", node.log,
                "--remote", cluster.redis.url, *cluster.options("--prefetch", "0")], node.env(), seconds=60)
    assert done.code == 0, done.err
    files = [node.cache / f"own {index}" for index in range(300)]
    for index, path in enumerate(files):
        path.write_text(f"own {index}")
    node.catch_up(writer, 40)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda name: (node.cache / name).read_text(), names)) == [f"value {n}" for n in range(300)]
        assert list(pool.map(lambda path: path.read_text(), files)) == [f"own {n}" for n in range(300)]
    (pid,) = node.daemons()
    assert len(os.listdir(f"/proc/{pid}/fd")) < 160
    node.sync(60)


def test_ten_thousand_open_files(cluster):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 10_500:
        lack("this process may not open 10,000 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 10_500), hard))
    node = cluster.quick("a")
    held = []
    try:
        for index in range(10_000):
            file = open(node.cache / f"file {index}", "w+b")
            file.write(index.to_bytes(4, "little"))
            file.flush()
            held.append(file)
        for index in range(0, 10_000, 2):
            os.unlink(node.cache / f"file {index}")
        for index, file in enumerate(held):
            file.seek(0)
            assert file.read() == index.to_bytes(4, "little"), index
        (pid,) = node.daemons()
        assert len(os.listdir(f"/proc/{pid}/fd")) < 900
        assert is_little(memory_of(node), 400 << 20)
    finally:
        for file in held:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: not any((node.store / "files" / "orphans").iterdir()), 20, "the deleted files to go")


def test_memory_is_bounded_while_much_is_fetched(cluster):
    """256 MiB through 16 threads: no more than what may be in flight is in memory."""
    writer = cluster.quick("writer")
    names = [artefacts.write_atomic(writer.cache, artefacts.code(f"file {index}"), text(4 << 20, index)).relative_to(writer.cache)
             for index in range(64)]
    writer.sync(120)
    node = cluster.quick("node", "--prefetch", "0")
    node.catch_up(writer)
    before = memory_of(node)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda name: len(appears(node.cache / name).read_bytes()), names)) == [4 << 20] * len(names)
    grown = memory_of(node) - before
    print(f"\ndaemon's peak: {before >> 20} MiB before, {grown >> 20} MiB more")
    assert is_little(grown, 160 << 20)
    assert is_little(memory_of(writer), 300 << 20)


def test_who_only_looks_pushes_out_little_that_a_job_has_read(cluster):
    """What du, updatedb or the stat of a backup does at night: 120 MiB through a store of 64, of which jobs have read 20."""
    writer = cluster.quick("writer")
    names = [artefacts.write_atomic(writer.cache, artefacts.code(f"file {index}"), text(512 << 10, index)).relative_to(writer.cache)
             for index in range(280)]
    writer.sync(120)
    node = cluster.quick("node", "--prefetch", "0", "--store-limit", "64M")
    node.catch_up(writer)
    read, walked = names[:40], names[40:]

    def fetched():
        return json.loads(node.cli("stats", node.cache, "--json").out)["all"]["fetched"]

    def fetched_while(look, some):
        before = fetched()
        for name in some:
            look(appears(node.cache / name))
        return fetched() - before

    assert fetched_while(Path.read_bytes, read) == len(read)
    assert fetched_while(Path.stat, walked) == len(walked)
    assert node.status()["store"]["evicted"] > len(walked) / 2
    assert fetched_while(Path.read_bytes, read) == 0


# ---- Redis away for long, and an index that is too much

def test_a_queue_that_only_grows_while_redis_is_away(cluster):
    """Every artefact is there, queued and counted; all go out when the server is back."""
    node = cluster.quick("a")
    with mounts.suspended(cluster.redis):
        names = [artefacts.write_graph(node.cache, f"k{index}", f"value {index}") for index in range(2000)]
        wait_until(lambda: node.status()["catalog"]["queued"] == 2000, 60, "all to be queued")
        assert all(name.read_text() == f"value {index}" for index, name in enumerate(names))
        queued = memory_of(node, "VmRSS")
    node.sync(120)
    assert len(mounts.published(cluster)) == 2000
    print(f"\ndaemon with 2,000 queued groups: {queued >> 20} MiB")


def test_a_full_queue_drops_its_oldest_which_stay_on_this_host(cluster):
    limit = 40
    node, other = cluster.quick("a", "--queue-limit", limit), cluster.quick("b")
    cluster.redis.kill()

    def write(names):
        made = [artefacts.write_graph(node.cache, name, f"value of {name}") for name in names]
        return [path.relative_to(node.cache) for path in made]

    def dropped():
        return node.counters().get("publish.dropped", 0)

    old = write(f"old {index}" for index in range(limit))
    wait_until(lambda: node.status()["catalog"]["queued"] == limit, 60, "the queue to be full")
    assert dropped() == 0
    new = write(f"new {index}" for index in range(limit))
    wait_until(lambda: dropped() == limit, 60, "one to be dropped for each new one")
    assert node.status()["catalog"]["queued"] == limit
    contents = {name: (node.cache / name).read_bytes() for name in old + new}
    assert all(content.startswith(b"value of ") for content in contents.values())
    assert "the publish queue was full and this was the oldest" in node.cli("explain", node.cache / old[0]).out

    cluster.redis.start()
    node.sync(60)
    assert mounts.published(cluster) == sorted(map(str, new))
    assert all(appears(other.cache / name).read_bytes() == contents[name] for name in new)
    assert not any(os.path.lexists(other.cache / name) for name in old)
    assert dropped() == limit and node.status()["catalog"]["queued"] == 0
    node.unmount()
    mounts.remount(node, cluster)
    assert {name: (node.cache / name).read_bytes() for name in old + new} == contents


def test_an_index_of_very_many_entries(cluster):
    """Of a broken or hostile publisher. INDUCTORFS_MANY_ENTRIES=1000000 for the figures of docs/operations/tuning.md."""
    first = cluster.quick("first")
    artefacts.write_atomic(first.cache, artefacts.code("one"), "text")
    first.sync()
    mounts.fill_index(cluster, ENTRIES)
    first.unmount()
    begin = time.monotonic()
    node = cluster.quick("node", "--prefetch", "0")
    mounted = time.monotonic() - begin
    wait_until(lambda: node.status()["catalog"]["entries"] >= ENTRIES, 300, "all entries to be known", pause=0.2)
    known = time.monotonic() - begin
    begin = time.monotonic()
    assert (node.cache / artefacts.code(f"many {ENTRIES // 2}")).read_text() == "text"
    looked_up = time.monotonic() - begin
    size = memory_of(node)
    begin = time.monotonic()
    node.unmount()
    mounts.remount(node, cluster, "--prefetch", "0")
    again = time.monotonic() - begin
    wait_until(lambda: node.status()["catalog"]["entries"] >= ENTRIES, 300, "all entries to be known again", pause=0.2)
    disk = sum(path.stat().st_size for path in node.store.glob("catalog.sqlite*"))
    print(f"\n{ENTRIES} entries: mount answers after {mounted:.1f} s, all known after {known:.1f} s, a first touch {looked_up * 1000:.0f} ms, "
          f"peak {size >> 20} MiB, catalog {disk >> 20} MiB, remount {again:.1f} s, then {memory_of(node) >> 20} MiB")
    assert is_little(size, (96 << 20) + ENTRIES * 700)
    assert looked_up < 5

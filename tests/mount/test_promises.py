# SPDX-License-Identifier: Apache-2.0
"""The promises of the design (design.md section 1), 1 to 4, each held against real mounts and a real Redis."""
import contextlib
import fcntl
import mmap
import os
import random
import re
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, mounts
from inductorfs_testing.mounts import QuickCluster, appears, populate, remount, suspended, text
from inductorfs_testing.processes import PATIENCE, Job, run, wait_until

DEADLINE = 2.0 * PATIENCE  # a first touch without progress is a miss after 250 ms; the rest is this machine's


def read_all(root, names):
    return {name: (root / name).read_bytes() for name in names if "__grp__" not in name.name}


# ---- 1: ENOENT or the right bytes

def test_what_one_node_wrote_another_reads(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    names = populate(a)
    a.sync()
    b.catch_up(a)
    assert read_all(b.cache, names) == read_all(a.cache, names)
    assert {name: (b.cache / name).stat().st_mode for name in names} == \
        {name: (a.cache / name).stat().st_mode for name in names}


def test_bytes_that_cannot_be_had_are_a_missing_name_at_stat(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.sync()
    wait_until(lambda: b.status()["catalog"]["entries"] == 1, what="the entry")
    (blob,) = mounts.blobs(cluster)
    cluster.redis.command("DEL", blob)
    with pytest.raises(FileNotFoundError):
        (b.cache / name).stat()
    assert b.counters()["fetch.absent"] == 1


def test_a_name_that_was_lost_comes_back_when_it_is_published_again(cluster):
    a, b, c = cluster.quick("a"), cluster.quick("b", "--prefetch", "0"), cluster.quick("c")
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.sync()
    wait_until(lambda: b.status()["catalog"]["entries"] == 1, what="the entry")
    cluster.redis.command("DEL", *mounts.blobs(cluster))
    assert not (b.cache / name).exists()
    shutil.rmtree(c.cache / "fxgraph", ignore_errors=True)  # so that c writes it without having seen it
    wait_until(lambda: not mounts.published(cluster), what="the dead entry to be taken from the index")
    artefacts.write_graph(c.cache, "k", "value")
    c.sync()
    appears(b.cache / name)
    assert (b.cache / name).read_bytes() == b"value"


def test_after_stat_nothing_fails_whatever_happens_to_redis(cluster):
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    data = text(3 << 20)
    name = artefacts.write_atomic(a.cache, artefacts.code("big"), data).relative_to(a.cache)
    a.sync()
    appears(b.cache / name)
    cluster.redis.kill()
    with open(b.cache / name, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == data
    assert (b.cache / name).read_bytes() == data


def test_open_file_keeps_its_bytes_when_replaced_or_removed_by_others(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    first, second = text(1 << 20, 1), text(1 << 20, 2)
    name = artefacts.write_atomic(a.cache, artefacts.code("x"), first).relative_to(a.cache)
    a.sync()
    appears(b.cache / name)
    with open(b.cache / name, "rb") as held:
        assert held.read(10) == first[:10]
        artefacts.write_atomic(a.cache, name, second)
        a.sync()
        wait_until(lambda: (b.cache / name).read_bytes() == second, what="the new content")
        assert held.read() == first[10:]
        os.unlink(b.cache / name)
        held.seek(0)
        assert held.read() == first


def test_an_open_file_is_whole_whoever_removes_its_name_meanwhile(cluster):
    """The moment between a name's end and its file's becoming an orphan: 1 of 400 opens saw an empty file there."""
    a = cluster.quick("a", remote=None)
    contents = {artefacts.code(f"f{index}"): f"# {index}\n".encode() * 3000 for index in range(8)}
    end, wrong = time.monotonic() + 4, []

    def work(seed):
        choose = random.Random(seed)
        while time.monotonic() < end:
            name = choose.choice(list(contents))
            what = choose.randrange(6)
            if what == 0:
                artefacts.write_atomic(a.cache, name, contents[name])
            with contextlib.suppress(FileNotFoundError):
                if what == 1:
                    os.unlink(a.cache / name)
                elif what > 1:
                    with open(a.cache / name, "rb") as file:
                        size = os.fstat(file.fileno()).st_size
                        if size != len(contents[name]) or file.read() != contents[name]:
                            wrong.append((name, size))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


# ---- 2: whole or absent, from one writer

def test_a_set_is_published_when_it_is_whole(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    directory = a.cache / "triton" / "0" / artefacts.triton_key("kernel")
    for name in artefacts.TRITON_FILES:
        artefacts.triton_put(directory, name, "{}" if name.endswith(".json") else "text")
    marker = artefacts.write_graph(a.cache, "later", "value").relative_to(a.cache)
    wait_until(lambda: mounts.published(cluster), what="the later artefact")
    appears(b.cache / marker)
    assert [name for name in mounts.published(cluster) if name.startswith("triton/")] == []
    assert not (b.cache / "triton").exists()


def test_a_set_never_mixes_writers(cluster):
    nodes = [cluster.quick(name) for name in ("a", "b", "c")]
    seeds = [f"kernel {index}" for index in range(10)]

    def compile_all(node):
        for seed in seeds:
            if artefacts.triton_read(node.cache, seed) is None:
                artefacts.triton_compile(node.cache, seed, node.name)

    threads = [threading.Thread(target=compile_all, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for node in nodes:
        node.sync()
    late = cluster.quick("late")
    late.catch_up(nodes[0])
    for node in (*nodes, late):
        for seed in seeds:
            children = artefacts.triton_read(node.cache, seed)
            assert children is not None, (node.name, seed)
            assert sorted(children) == sorted(artefacts.TRITON_FILES)
            assert len(artefacts.triton_writers(children)) == 1, (node.name, seed, children)


def test_the_first_set_of_a_key_stays(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    cluster.redis.kill()
    for node in (a, b):
        artefacts.triton_compile(node.cache, "kernel", node.name)
    b.unmount()
    cluster.redis.start()
    a.sync(60)
    mounts.remount(b, cluster)
    b.sync(60)
    late = cluster.quick("late")
    late.catch_up(a)
    assert artefacts.triton_writers(artefacts.triton_read(late.cache, "kernel")) == {"a"}
    assert len(artefacts.triton_writers(artefacts.triton_read(b.cache, "kernel"))) == 1


def test_a_reader_during_the_write_sees_all_of_a_set_or_nothing(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    seeds = [f"kernel {index}" for index in range(30)]
    over = threading.Event()
    seen, wrong = set(), []

    def watch():
        while not over.is_set():
            for seed in seeds:
                children = artefacts.triton_read(b.cache, seed, "1")
                if children is None:
                    continue
                seen.add(seed)
                if artefacts.triton_writers(children) != {"a"} or len(children) != len(artefacts.TRITON_FILES):
                    wrong.append((seed, children))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for seed in seeds:
        artefacts.triton_compile(a.cache, seed, "a")
    a.sync()
    try:
        wait_until(lambda: len(seen) == len(seeds), 30, "all sets")
    finally:
        over.set()
        watcher.join(30)
    assert not wrong


def test_a_file_written_in_place_is_published_at_its_sign(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    final = a.cache / artefacts.code("library", ".so")
    final.parent.mkdir()
    build = final.with_name(final.stem + "_CxxBuild")
    build.mkdir()
    library = artefacts.build_library(a.root / "elsewhere", "library").read_bytes()
    final.write_bytes(library[:len(library) // 2])
    marker = artefacts.write_graph(a.cache, "later", "value").relative_to(a.cache)
    appears(b.cache / marker)
    name = final.relative_to(a.cache)
    assert not (b.cache / name).exists()
    with open(final, "ab") as file:
        file.write(library[len(library) // 2:])
    final.chmod(0o755)
    build.rmdir()
    appears(b.cache / name)
    assert (b.cache / name).read_bytes() == library
    assert (b.cache / name).stat().st_mode & 0o777 == 0o755


# ---- 3: Redis never hurts a job

@pytest.fixture
def hasty_cluster():
    """Its nodes wait for the server as long as a user's do."""
    with QuickCluster(patient=False) as made:
        yield made


@pytest.mark.parametrize("how", ["hung", "hung while connected", "dead"])
def test_reads_answer_within_the_deadline(hasty_cluster, how):
    cluster = hasty_cluster
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0")
    names = [artefacts.write_graph(a.cache, f"k{index}", f"value {index}").relative_to(a.cache) for index in range(21)]
    a.sync()
    wait_until(lambda: b.status()["catalog"]["entries"] == len(names), what="the entries")
    first = names.pop()
    if how == "hung while connected":
        assert (b.cache / first).exists()

    def read_without_redis():
        slowest = 0.0
        for name in names:
            begin = time.monotonic()
            assert not (b.cache / name).exists()
            slowest = max(slowest, time.monotonic() - begin)
        return slowest

    if how.startswith("hung"):
        with suspended(cluster.redis):
            begin = time.monotonic()
            assert read_without_redis() < DEADLINE
            assert time.monotonic() - begin < 4 * DEADLINE, "each miss pays the deadline anew"
    else:
        cluster.redis.kill()
        assert read_without_redis() < DEADLINE
        cluster.redis.start()
    for name in names:
        appears(b.cache / name)


def test_a_lookup_waits_for_a_new_connection_as_long_as_for_an_answer(cluster):
    """A busy server may be without a core when it is to greet."""
    a, b = cluster.quick("a"), cluster.quick("b", "--prefetch", "0", "--lookup-patience", "60000")
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.sync()
    b.catch_up(a)
    with suspended(cluster.redis):
        begin, job = time.monotonic(), Job(["cat", b.cache / name], b.env(), b.root / "jobs", "cat")
        wait_until(lambda: time.monotonic() - begin > 4, what="some time")  # which is what is tested
        assert job.running
    done = job.wait(60)
    assert (done.code, done.out) == (0, "value"), done


@pytest.mark.parametrize("how", ["hung", "dead"])
def test_writes_neither_wait_for_redis_nor_fail(cluster, how):
    a, b = cluster.quick("a"), cluster.quick("b")
    if how == "dead":
        cluster.redis.kill()
    context = suspended(cluster.redis) if how == "hung" else contextlib.nullcontext()
    slowest, written = 0.0, []
    with context:
        for index in range(60):
            begin = time.monotonic()
            written.append(artefacts.write_graph(a.cache, f"k{index}", f"value {index}"))
            slowest = max(slowest, time.monotonic() - begin)
        assert [path.read_bytes() for path in written] == [f"value {index}".encode() for index in range(60)]
        assert slowest < DEADLINE
        assert a.status()["catalog"]["queued"] > 0
    if how == "dead":
        cluster.redis.start()
    a.sync(60)
    b.catch_up(a)
    assert all((b.cache / path.relative_to(a.cache)).exists() for path in written)


def test_what_was_queued_survives_the_mount(cluster):
    a = cluster.quick("a")
    cluster.redis.kill()
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.unmount()
    cluster.redis.start()
    remount(a, cluster)
    a.sync()
    b = cluster.quick("b")
    assert appears(b.cache / name).read_bytes() == b"value"


def test_a_mount_without_redis_works_and_catches_up(cluster):
    a = cluster.quick("a")
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.sync()
    cluster.redis.kill()
    b = cluster.quick("b")
    own = artefacts.write_graph(b.cache, "own", "of b").relative_to(b.cache)
    assert (b.cache / own).read_bytes() == b"of b"
    assert not (b.cache / name).exists()
    cluster.redis.start()
    appears(b.cache / name, 40)
    b.sync(60)
    appears(a.cache / own, 40)


def test_a_full_redis_costs_nothing_but_the_sharing():
    with QuickCluster(redis_settings=("--maxmemory", "6mb", "--maxmemory-policy", "noeviction")) as cluster:
        a = cluster.quick("a")
        for index in range(12):
            path = artefacts.write_atomic(a.cache, artefacts.code(f"big {index}"), text(1 << 20, index))
            assert path.stat().st_size == 1 << 20
        wait_until(lambda: "OOM" in a.status()["catalog"]["oldest_queued_error"], 20, "the OOM")
        cluster.redis.command("CONFIG", "SET", "maxmemory", "0")
        a.sync(60)
        assert len(mounts.published(cluster)) == 12


# ---- 4: the warm path is the kernel's

def use(root, names, absent):
    """What a warm start does: list, stat, open, read, map, and names that are not there. No TCGETS: os.open."""
    for directory, _, files in os.walk(root):
        for file in files:
            os.stat(os.path.join(directory, file))
    for name in names:
        descriptor = os.open(root / name, os.O_RDONLY | os.O_CLOEXEC)
        os.fstat(descriptor)
        while os.read(descriptor, 1 << 20):
            pass
        os.lseek(descriptor, 0, os.SEEK_SET)
        with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
            mapped[:]
        os.close(descriptor)
        os.access(root / name, os.R_OK)
    for name in absent:
        assert not os.path.lexists(root / name)
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(root / name, os.O_RDONLY))


def requests_of(node, function, *arguments):
    """{operation: number} that reached the daemon while the function ran."""
    before = node.counters()
    function(*arguments)
    after = node.counters()
    grown = {name: after[name] - before.get(name, 0) for name in after
             if re.match(r"fuse\.(?!forget|nanoseconds|slow|notify)", name) and after[name] != before.get(name, 0)}
    return grown


ABSENT = ["nothing", "fxgraph/zz/none", "ab/none.py", "triton/0/none", artefacts.graph("none", "none")]


@pytest.mark.parametrize("who", ["writer", "reader"])
def test_a_second_run_asks_nothing(cluster, who):
    a, b = cluster.quick("a"), cluster.quick("b")
    names = populate(a)
    a.sync()
    b.catch_up(a)
    node = a if who == "writer" else b
    names = [Path(str(name).replace("triton/0", "triton/3")) if who == "reader" else name for name in names]
    use(node.cache, names, ABSENT)
    use(node.cache, names, ABSENT)
    assert requests_of(node, use, node.cache, names, ABSENT) == {}


def test_a_warm_dlopen_asks_nothing(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    name = artefacts.build_library(a.cache, "library").relative_to(a.cache)
    a.sync()
    appears(b.cache / name)
    job = [sys.executable, "-S", "-c", "import ctypes, sys; assert ctypes.CDLL(sys.argv[1]).answer() == 42",
           str(b.cache / name)]

    def load():
        assert run(job, seconds=30).code == 0

    load()
    load()
    assert requests_of(b, load) == {}


def test_only_the_forced_requests_are_left(cluster):
    a = cluster.quick("a")
    names = populate(a)
    a.sync()

    def work():
        for name in names:
            with open(a.cache / name, "rb") as file:  # Python before 3.14: isatty
                file.read()
            with contextlib.suppress(FileExistsError):
                os.mkdir(a.cache / name.parent)
            with contextlib.suppress(FileExistsError):
                os.open(a.cache / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)

    work()
    work()
    grown = requests_of(a, work)
    assert set(grown) <= {"fuse.requests", "fuse.ioctl", "fuse.lookup"}
    assert grown.get("fuse.ioctl", 0) <= len(names)
    assert grown.get("fuse.lookup", 0) <= 2 * len(names)


def test_locks_of_processes_ask_nothing(cluster):
    a = cluster.quick("a")
    path = a.cache / "locks" / "x.lock"
    path.parent.mkdir()

    def lock():
        descriptor = os.open(path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    path.write_text("")
    lock()
    assert requests_of(a, lock) == {}

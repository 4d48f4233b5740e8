# SPDX-License-Identifier: Apache-2.0
"""Directories that are one artefact: whole or not there, on two mounts of one Redis, whatever happens to the server, to the bytes in
it, to the worker, to the store and to the directory itself. The engines' part is protocols.py."""
import contextlib
import errno
import json
import os
import shutil
import stat
import threading
import time
from pathlib import Path

import protocols
import pytest
from inductorfs_testing import mounts
from inductorfs_testing.mounts import QuickCluster, appears, disappears, published
from inductorfs_testing.processes import PATIENCE, wait_until
from inductorfs_testing.users import as_user
from protocols import DIRECTORIES, DeepGemm, DeepJit, Sglang, TileLang, digest_of, writers_of

FACTS = {"engine": "the same everywhere"}
ALICE, BOB = 54321, 54322
every_engine = pytest.mark.parametrize("engine", DIRECTORIES, ids=lambda engine: engine.__name__)


@pytest.fixture
def cluster():
    with QuickCluster() as made:
        yield made


def mounted(cluster, name, *more, **keywords):
    return cluster.quick(name, *more, facts=FACTS, **keywords)


def remounted(cluster, node, *more):
    return node.start(*cluster.options(*more, **FACTS))


@pytest.fixture
def pair(cluster):
    """Two nodes; the second one fetches nothing before it is asked for."""
    return mounted(cluster, "a"), mounted(cluster, "b", "--prefetch", "0")


def root_of(node, engine):
    root = node.cache / engine.root
    os.makedirs(root, exist_ok=True)
    return root


def at(node, engine, seed="kernel"):
    return node.cache / engine.root / engine.name(seed)


def whole(directory):
    """{name below the directory: bytes}."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(Path(directory).rglob("*")) if path.is_file()}


def make(node, engine, seed="kernel", writer=None):
    return engine.make(root_of(node, engine), seed, writer or node.name)


def find(node, engine, seed="kernel"):
    return engine.find(root_of(node, engine), seed)


def listed(node, engine, seed="kernel"):
    """Waits until the directory above lists the name, which fetches nothing."""
    path = at(node, engine, seed)
    root_of(node, engine)

    def lists():
        with contextlib.suppress(OSError):
            return path.name in os.listdir(path.parent)
        return False

    wait_until(lists, 15, f"{path} to be listed: {node.explain(path.relative_to(node.cache))}")
    return path


def shared(writer, reader, engine, seed="kernel"):
    """The engine's files of a directory that `writer` made and `reader` lists."""
    made = make(writer, engine, seed)
    writer.sync()
    listed(reader, engine, seed)
    return made


def blob_of(cluster, before):
    return next(key for key in mounts.blobs(cluster) if key not in before)


def checked(node):
    done = node.cli("check", "--store", node.store)
    assert done.code == 0, done.out + done.err


# ---- what the second node gets

@every_engine
def test_the_second_node_has_the_whole_directory(pair, engine):
    a, b = pair
    made = shared(a, b, engine)
    assert find(b, engine) == made
    assert whole(at(b, engine)) == whole(at(a, engine))
    assert make(b, engine) == made, "its own writer takes what is there"
    for one, other in zip(sorted(at(a, engine).rglob("*")), sorted(at(b, engine).rglob("*")), strict=True):
        assert one.name == other.name and one.stat().st_size == other.stat().st_size


@every_engine
def test_files_that_only_their_owner_may_read_are_readable_elsewhere(pair, engine):
    """Engines write with the umask that they are given, and the pod of the second one has another user."""
    if os.geteuid() != 0:
        pytest.skip("changes users")
    a, b = pair
    mask = os.umask(0o077)
    try:
        made = make(a, engine)
    finally:
        os.umask(mask)
    a.sync()
    for directory in (b.root.parent, b.root, b.cache):
        directory.chmod(0o755)
    listed(b, engine)
    assert as_user(ALICE, 0o022, engine.find, b.cache / engine.root, "kernel") == made
    b.unmount()
    checked(b)


@every_engine
def test_a_directory_is_listed_as_one_before_it_is_fetched(pair, engine):
    a, b = pair
    shared(a, b, engine)
    above = at(b, engine).parent
    entry = next(entry for entry in os.scandir(above) if entry.name == at(b, engine).name)
    assert entry.is_dir(follow_symlinks=False) and not entry.is_symlink()
    assert not b.counters().get("fetch.blobs"), "a listing fetches nothing"
    assert find(b, engine)
    assert b.counters()["fetch.blobs"] == 1


@every_engine
def test_what_is_in_the_staging_directories_stays_on_its_host(pair, cluster, engine):
    a, b = pair
    shared(a, b, engine)
    below = {name.rpartition("/")[2] for name in published(cluster)}
    assert below == {engine.name("kernel").name}, published(cluster)


# ---- a second writer

def rename_onto(node, engine):
    """What a rename of a directory of one's own onto the name answers; nothing may have changed then."""
    temporary = root_of(node, engine) / "own"
    temporary.mkdir()
    (temporary / "file").write_bytes(b"of the second writer")
    before = whole(at(node, engine)) if node.name == "a" else None  # the other node has not looked yet
    try:
        os.rename(temporary, at(node, engine))
        return None
    except OSError as error:
        assert (temporary / "file").read_bytes() == b"of the second writer"
        assert before in (None, whole(at(node, engine)))
        return error.errno
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@every_engine
@pytest.mark.parametrize("who", ["a", "b"])
def test_a_rename_onto_an_existing_directory_is_refused_as_its_writer_expects(pair, engine, who):
    a, b = pair
    made = shared(a, b, engine)
    assert rename_onto(a if who == "a" else b, engine) in (errno.ENOTEMPTY, errno.EEXIST)
    assert find(a, engine) == find(b, engine) == made


@every_engine
def test_eight_writers_at_once_go_on_and_none_reads_a_mixture(pair, cluster, engine):
    barrier, results = threading.Barrier(8), {}

    def run(node, number):
        barrier.wait(30)
        try:
            results[node.name, number] = writers_of(make(node, engine, "hot", f"{node.name}{number}"))
        except BaseException as error:  # pylint: disable=broad-except
            results[node.name, number] = error

    threads = [threading.Thread(target=run, args=(node, number)) for node in pair for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert all(isinstance(told, set) and len(told) == 1 for told in results.values()) and len(results) == 8, results
    for node in pair:
        node.sync()
        told = {frozenset(told) for (name, _), told in results.items() if name == node.name}
        assert len(told) == 1, "all processes of one host have loaded the same"
        assert {frozenset(writers_of(find(node, engine, "hot")))} == told
    late = mounted(cluster, "late")
    listed(late, engine, "hot")
    assert len(writers_of(find(late, engine, "hot"))) == 1
    assert len(writers_of(whole(at(late, engine, "hot")))) == 1


# ---- the server and its bytes

@every_engine
def test_without_the_server_it_is_a_miss_and_then_there(pair, cluster, engine):
    a, b = pair
    made = shared(a, b, engine)
    kept = shared(a, b, engine, "kept")
    assert find(b, engine, "kept") == kept
    with mounts.suspended(cluster.redis):
        assert find(b, engine) is None
        assert find(b, engine, "kept") == kept
        assert writers_of(make(b, engine, "own")) == {"b"}
    wait_until(lambda: find(b, engine) == made, 20, "the directory to be there again")


@every_engine
def test_what_was_unpacked_stays_whole_when_the_cluster_loses_everything(pair, cluster, engine):
    a, b = pair
    made, kept = shared(a, b, engine), shared(a, b, engine, "kept")
    assert find(b, engine, "kept") == kept
    descriptors = [os.open(path, os.O_RDONLY) for path in at(b, engine, "kept").rglob("*") if path.is_file()]
    cluster.redis.command("FLUSHALL")
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert find(b, engine) in (None, made)
        assert find(b, engine, "kept") in (None, kept)
        assert find(a, engine) == made, "its writer keeps it"
    assert all(os.read(descriptor, 1) or True for descriptor in descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    assert len(writers_of(make(b, engine))) == 1


def flipped(place):
    def damage(cluster, key):
        size = cluster.redis.command("STRLEN", key)
        where = int(size * place) if place < 1 else size - 3
        was = cluster.redis.command("GETRANGE", key, where, where)
        cluster.redis.command("SETRANGE", key, where, bytes([was[0] ^ 0x10]))
    damage.__name__ = f"flipped_at_{place}"
    return damage


def cut(cluster, key):
    cluster.redis.command("SET", key, cluster.redis.command("GET", key)[:-1000])


def of_another(cluster, key):
    other = next(name for name in mounts.blobs(cluster) if name != key)
    cluster.redis.command("SET", key, cluster.redis.command("GET", other))


def missing(cluster, key):
    cluster.redis.command("DEL", key)


DAMAGES = [flipped(0.01), flipped(0.3), flipped(0.7), flipped(1), cut, of_another, missing]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_parcel_is_a_miss_and_is_made_anew(pair, cluster, damage):
    a, b = pair
    shared(a, b, DeepGemm, "other")
    before = mounts.blobs(cluster)
    shared(a, b, DeepGemm)
    damage(cluster, blob_of(cluster, before))
    assert find(b, DeepGemm) is None
    assert not at(b, DeepGemm).exists()
    assert writers_of(make(b, DeepGemm)) == {"b"}
    assert writers_of(find(a, DeepGemm)) == {"a"}


# ---- the store

def test_a_store_that_is_too_small_evicts_whole_directories(cluster):
    """Of 12 directories of 8 MiB the store holds 7, while all are read again and again."""
    limit = 64 << 20
    a, b = mounted(cluster, "a"), mounted(cluster, "b", "--store-limit", limit, "--prefetch", "0")
    seeds = [f"big {number}" for number in range(12)]
    made = {}
    for seed in seeds:
        staging = root_of(a, DeepGemm) / "tmp" / digest_of(seed, 8)
        staging.mkdir(parents=True)
        (staging / "kernel.cu").write_bytes(protocols.told_by(seed) * 10)
        (staging / "kernel.cubin").write_bytes(protocols.cubin(seed, 8 << 20))
        at(a, DeepGemm, seed).parent.mkdir(exist_ok=True)
        os.rename(staging, at(a, DeepGemm, seed))
        made[seed] = find(a, DeepGemm, seed)
    a.sync(120)
    misses = 0
    for _ in range(3):
        for seed in seeds:
            listed(b, DeepGemm, seed)
            found = find(b, DeepGemm, seed)
            misses += found is None
            assert found in (None, made[seed]), seed
            assert b.status()["store"]["bytes"] <= limit
    assert misses < len(seeds), "most reads find it"
    assert b.status()["store"]["evicted"] > 0
    on_disk = sum(path.stat().st_blocks * 512 for path in b.store.rglob("*") if path.is_file())
    assert on_disk <= 3.5 * limit, "what is unpacked goes with its blob"


# ---- the worker

class Storm:
    """Processes of engines that read and write directories of few names on all nodes, and what went wrong."""

    def __init__(self, nodes, engines, seeds=6):
        self.nodes, self.engines, self.seeds = nodes, engines, seeds
        self.errors, self.reads, self._end = [], 0, threading.Event()
        self.round = 0
        self._threads = [threading.Thread(target=self._run, args=(node, number)) for node in nodes for number in range(3)]
        for thread in self._threads:
            thread.start()

    def _run(self, node, number):
        turn = 0
        while not self._end.is_set():
            turn += 1
            engine, seed = self.engines[turn % len(self.engines)], f"storm {self.round} {turn % self.seeds}"
            try:
                found = (make if number < 2 else find)(node, engine, seed, *([f"{node.name}{number}"] if number < 2 else []))
                told = writers_of(found) if found else set()
                if found is not None and len(told) != 1:
                    self.errors.append(f"{node.name}: {engine.__name__} {seed}: a mixture of {told}")
                self.reads += found is not None
            except BaseException as error:  # pylint: disable=broad-except
                self.errors.append(f"{node.name}: {engine.__name__} {seed}: {type(error).__name__} {error}")

    def end(self):
        self._end.set()
        for thread in self._threads:
            thread.join(60 * PATIENCE)
            assert not thread.is_alive(), "a process hangs"


def test_workers_that_are_killed_again_and_again_show_no_part(cluster):
    a, b = (mounted(cluster, name, "--crash-limit", "0") for name in "ab")
    engines = [engine for engine in DIRECTORIES if engine is not Sglang]  # its lock is not one that a takeover keeps
    storm = Storm([a, b], engines)
    try:
        for number in range(12):
            storm.round = number
            for node in (a, b):
                node.next_worker(node.kill_worker())
    finally:
        storm.end()
    assert not storm.errors, storm.errors[:10]
    assert storm.reads > 100
    for node in (a, b):
        node.sync()
    for number in range(12):
        for engine in engines:
            for seed in range(storm.seeds):
                for node in (a, b):
                    found = find(node, engine, f"storm {number} {seed}")
                    assert found is None or len(writers_of(found)) == 1
    for node in (a, b):
        assert not [left for orphans in node.store.rglob("orphans") for left in os.listdir(orphans)]
        node.unmount()
        checked(node)


POINTS = {"seal.parcel_stored": "a", "parcel.unpacked": "b", "parcel.placed": "b"}


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_killed_at_a_step_leaves_all_or_nothing(cluster, tmp_path, point):
    once = tmp_path / "killed"
    variables = {"INDUCTORFS_FAIL_POINT": point, "INDUCTORFS_FAIL_POINT_ONCE": str(once)}
    a, b = (mounted(cluster, name, "--crash-limit", "0", "--prefetch", "0", environment=variables if POINTS[point] == name else {})
            for name in "ab")
    made = shared(a, b, DeepGemm)
    assert find(b, DeepGemm) == made
    assert once.exists(), "the point was not reached"
    node = a if POINTS[point] == "a" else b
    wait_until(lambda: node.status()["takeover"]["restarts"] == 1, what="the takeover")
    assert find(a, DeepGemm) == find(b, DeepGemm) == made
    for node in (a, b):
        assert not [left for orphans in node.store.rglob("orphans") for left in os.listdir(orphans)]
        node.unmount()
        checked(node)


@every_engine
def test_a_mount_after_a_mount_has_it_without_the_server(pair, cluster, engine):
    a, b = pair
    made = shared(a, b, engine)
    assert find(b, engine) == made
    for node in pair:
        node.unmount()
    with mounts.suspended(cluster.redis):
        for node in pair:
            remounted(cluster, node)
            assert find(node, engine) == made
    for node in pair:
        node.kill_daemon()
        node.cli("unmount", "--lazy", node.cache)
        remounted(cluster, node)
        assert find(node, engine) == made
        node.unmount()
        checked(node)


# ---- what a program may put into a directory

def symbolic_link(directory):
    (directory / "link").symlink_to("/etc/passwd")


def fifo(directory):
    os.mkfifo(directory / "fifo")


def device(directory):
    if os.geteuid() != 0:
        pytest.skip("makes a device")
    os.mknod(directory / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))


def many(directory):
    for number in range(4200):
        (directory / f"{number}").write_bytes(b"x")


def deep(directory):
    (directory / "/".join("d" * 12)).mkdir(parents=True)
    (directory / "/".join("d" * 12) / "file").write_bytes(b"x")


def large(directory):
    with open(directory / "large", "wb") as file:
        file.truncate(5 << 20)
        file.write(b"x")


def of_another_user(directory):
    if os.geteuid() != 0:
        pytest.skip("changes owners")
    (directory / "hers").write_bytes(b"of another user")
    os.chown(directory / "hers", ALICE, ALICE)


@pytest.mark.parametrize("put", [symbolic_link, fifo, device, many, deep, large], ids=lambda put: put.__name__)
def test_a_directory_with_what_no_engine_puts_there_stays_on_its_host(cluster, put):
    a, b = mounted(cluster, "a", "--artefact-limit", "4M"), mounted(cluster, "b")
    root = root_of(a, DeepGemm)
    staging = root / "tmp" / "odd"
    staging.mkdir(parents=True)
    (staging / "kernel.cu").write_bytes(protocols.told_by("a"))
    (staging / "kernel.cubin").write_bytes(protocols.cubin("a"))
    put(staging)
    names = sorted(os.listdir(staging))
    at(a, DeepGemm).parent.mkdir()
    os.rename(staging, at(a, DeepGemm))
    assert sorted(os.listdir(at(a, DeepGemm))) == names and writers_of(find(a, DeepGemm)) == {"a"}
    good = shared(a, b, DeepGemm, "good")
    assert find(b, DeepGemm, "good") == good
    assert [name.rpartition("/")[2] for name in published(cluster)] == [DeepGemm.name("good").name]
    assert not at(b, DeepGemm).exists()
    told = a.cli("explain", at(a, DeepGemm)).out
    assert "local directory" in told or "not shared" in told or "private" in told, told
    shutil.rmtree(at(a, DeepGemm))
    assert writers_of(make(a, DeepGemm)) == {"a"}


def test_modes_that_give_rights_are_not_shared(pair):
    a, b = pair
    staging = root_of(a, DeepGemm) / "tmp" / "odd"
    staging.mkdir(parents=True)
    (staging / "kernel.cu").write_bytes(protocols.told_by("a"))
    (staging / "kernel.cubin").write_bytes(protocols.cubin("a"))
    (staging / "kernel.cubin").chmod(0o6777)
    (staging / "kernel.cu").chmod(0o666)
    staging.chmod(0o3777)
    at(a, DeepGemm).parent.mkdir()
    os.rename(staging, at(a, DeepGemm))
    a.sync()
    listed(b, DeepGemm)
    for path in (at(b, DeepGemm), *at(b, DeepGemm).iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o7022 == 0, f"{path}: {path.stat().st_mode:o}"


def test_a_file_where_a_directory_is_expected_and_the_reverse(pair, cluster):
    a, b = pair
    root_of(a, DeepGemm)
    at(a, DeepGemm).parent.mkdir()
    at(a, DeepGemm).write_bytes(b"no directory")
    renamed = at(a, DeepGemm, "renamed")
    (renamed.parent / "other").write_bytes(b"no directory")
    os.rename(renamed.parent / "other", renamed)
    cubin = at(a, protocols.FlashInferCubin)
    cubin.mkdir(parents=True)
    (cubin / "inner").write_bytes(protocols.cubin("a"))
    good = shared(a, b, DeepGemm, "good")
    assert find(b, DeepGemm, "good") == good
    assert [name.rpartition("/")[2] for name in published(cluster)] == [DeepGemm.name("good").name]
    assert at(a, DeepGemm).read_bytes() == renamed.read_bytes() == b"no directory"
    assert writers_of(make(b, DeepGemm)) == {"b"} and writers_of(make(b, DeepGemm, "renamed")) == {"b"}
    b.sync()
    assert at(a, DeepGemm).read_bytes() == b"no directory", "what was made here stays"
    os.unlink(renamed)
    assert writers_of(make(a, DeepGemm, "renamed")) in ({"a"}, {"b"})


def test_files_of_several_users_are_not_one_artefact(cluster):
    if os.geteuid() != 0:
        pytest.skip("changes users")
    a, b = mounted(cluster, "a"), mounted(cluster, "b")
    staging = root_of(a, DeepGemm) / "tmp" / "odd"
    staging.mkdir(parents=True)
    (staging / "kernel.cu").write_bytes(protocols.told_by("a"))
    (staging / "kernel.cubin").write_bytes(protocols.cubin("a"))
    os.chown(staging / "kernel.cubin", ALICE, ALICE)
    at(a, DeepGemm).parent.mkdir()
    os.rename(staging, at(a, DeepGemm))
    shared(a, b, DeepGemm, "good")
    assert [name.rpartition("/")[2] for name in published(cluster)] == [DeepGemm.name("good").name]
    assert not at(b, DeepGemm).exists()


def test_a_users_directories_are_that_users_elsewhere(cluster):
    if os.geteuid() != 0:
        pytest.skip("changes users")
    nodes = []
    for name in "ab":
        node = cluster.node(name, start=False)
        cluster.directory.chmod(0o755)
        node.root.chmod(0o755)
        node.cache.chmod(0o1777)
        nodes.append(node.start(*cluster.options("--lookup-patience", "5000", **FACTS)))
    a, b = nodes

    def own(node, name, user):
        root = node.cache / name
        root.mkdir()
        os.chown(root, user, user)
        return root

    made = as_user(ALICE, 0o022, DeepGemm.make, own(a, "alice", ALICE), "kernel", "alice")
    a.sync()
    hers, his = own(b, "hers", ALICE), own(b, "his", BOB)
    as_user(ALICE, 0o022, (hers / "cache").mkdir)
    as_user(BOB, 0o022, (his / "cache").mkdir)
    as_user(ALICE, 0o022, os.path.exists, hers / DeepGemm.name("kernel"))
    wait_until(lambda: as_user(ALICE, 0o022, DeepGemm.find, hers, "kernel") == made, 15, "hers")
    assert (hers / DeepGemm.name("kernel")).stat().st_uid == ALICE
    assert as_user(BOB, 0o022, DeepGemm.find, his, "kernel") is None
    assert DeepGemm.find(b.cache, "kernel") is None


# ---- what is done to a directory later

@every_engine
def test_rm_of_the_directory_is_of_one_host_and_it_is_made_again(pair, engine):
    a, b = pair
    made = shared(a, b, engine)
    assert find(b, engine) == made
    shutil.rmtree(at(b, engine))
    assert not at(b, engine).exists() and at(b, engine).name not in os.listdir(at(b, engine).parent)
    assert find(a, engine) == made
    at(b, engine).mkdir()
    assert os.listdir(at(b, engine)) == []
    at(b, engine).rmdir()
    assert writers_of(make(b, engine)) == {"b"}
    b.sync()
    assert writers_of(find(b, engine)) == {"b"} and find(a, engine) == made


@every_engine
def test_rm_before_it_was_ever_looked_up(pair, engine):
    a, b = pair
    made = shared(a, b, engine)
    shutil.rmtree(at(b, engine))
    assert not at(b, engine).exists()
    assert find(a, engine) == made and writers_of(make(b, engine)) == {"b"}


def times(directory):
    """What a hit of SGLang and of DeepJIT does."""
    os.utime(directory)
    for path in directory.iterdir():
        os.utime(path)


def modes(directory):
    """DeepJIT of later releases: set_shared_permissions."""
    directory.chmod(0o775)
    for path in directory.iterdir():
        path.chmod(0o664)


@pytest.mark.parametrize("change", [times, modes], ids=lambda change: change.__name__)
@pytest.mark.parametrize("who", ["a", "b"])
def test_a_directory_whose_times_or_modes_are_set_is_still_the_clusters(pair, cluster, change, who):
    a, b = pair
    node = a if who == "a" else b
    made = shared(a, b, DeepGemm)
    assert find(b, DeepGemm) == made
    before = mounts.blobs(cluster)
    change(at(node, DeepGemm))
    node.sync()
    node.next_worker(node.kill_worker())
    node.sync()
    assert find(a, DeepGemm) == find(b, DeepGemm) == made
    assert mounts.blobs(cluster) == before, "nothing new was published"
    for other in (a, b):
        other.unmount()
        checked(other)
        remounted(cluster, other)
    done = a.cli("purge", "--yes", "--all", a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0, done.out + done.err
    disappears(at(b, DeepGemm), 5)


def test_a_file_that_is_added_later_changes_no_other_host(pair):
    """tilelang/jit/adapter/cutedsl/adapter.py: the first run puts kernel.cubin into the directory that is published already."""
    a, b = pair
    made = shared(a, b, TileLang)
    before = whole(at(a, TileLang))
    TileLang.safe_write(at(a, TileLang) / "kernel.cubin", protocols.cubin("a"))
    after = whole(at(a, TileLang))
    a.sync()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert whole(at(b, TileLang)) in (before, after)
    assert find(a, TileLang) == find(b, TileLang) == made
    TileLang.safe_write(at(b, TileLang) / "kernel.cubin", protocols.cubin("b"))
    assert find(b, TileLang) == made and writers_of({"": (at(b, TileLang) / "kernel.cubin").read_bytes()}) == {"b"}
    assert whole(at(a, TileLang)) == after


# ---- operators

@every_engine
def test_explain_check_and_purge_know_a_directory(pair, cluster, engine):
    a, b = pair
    shared(a, b, engine)
    told = json.loads(b.cli("explain", "--json", at(b, engine)).out)
    assert told["origin"] and told["digest"] and told["where"] in ("cluster", "remote", "store"), told
    assert find(b, engine)
    told = json.loads(b.cli("explain", "--json", at(b, engine)).out)
    assert told["where"] == "store" and told["visible"] and "unpacked" in told["why"], told
    inner = b.cli("explain", at(b, engine) / engine.files[0]).out
    assert told["family"] in inner or at(b, engine).name in inner, inner
    assert json.loads(a.cli("explain", "--json", at(a, engine)).out)["where"] == "sealed local directory"
    for node in pair:
        node.unmount()
        checked(node)
        remounted(cluster, node)
    damaged = next(path for path in b.store.rglob(engine.files[0]) if path.is_file())
    b.unmount()
    damaged.write_bytes(b"damaged")
    done = b.cli("check", "--store", b.store)
    assert done.code != 0 and at(b, engine).name in done.out + done.err, done.out + done.err
    b.cli("check", "--store", b.store, "--repair")
    checked(b)
    remounted(cluster, b)
    assert find(b, engine) == find(a, engine)
    held = os.open(at(b, engine) / engine.files[0], os.O_RDONLY)
    done = a.cli("purge", "--yes", "--family", told["family"], a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "1 entries are removed" in done.out, done.out + done.err
    assert not published(cluster)
    for node in pair:
        disappears(at(node, engine), 5)
        assert at(node, engine).name not in os.listdir(at(node, engine).parent)
    assert os.read(held, 4)
    os.close(held)
    assert writers_of(make(b, engine)) == {"b"}
    b.sync()
    assert writers_of(whole(appears(at(a, engine)))) == {"b"}

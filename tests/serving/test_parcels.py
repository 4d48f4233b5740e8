# SPDX-License-Identifier: Apache-2.0
"""Directories that are one artefact: whole or not there, on two mounts of one Redis, whatever happens to the server, to the bytes in it,
to the store and to the worker. The engines' part is protocols.py."""
import errno
import os
import shutil
import threading
import time

import protocols
import pytest
from inductorfs_testing import mounts
from inductorfs_testing.fixtures import lack
from inductorfs_testing.mounts import published
from inductorfs_testing.processes import PATIENCE, wait_until
from inductorfs_testing.users import as_user
from parcels import ALICE, at, blob_of, checked, cluster, every_engine, find, listed, make, mounted, pair, remounted, root_of, shared, whole  # noqa: F401
from protocols import DeepGemm, digest_of, DIRECTORIES, Sglang, writers_of


# ---- what the second node gets

@every_engine
def test_the_second_node_lists_a_directory_as_one_and_has_it_whole(pair, cluster, engine):
    a, b = pair
    made = shared(a, b, engine)
    below = {name.rpartition("/")[2] for name in published(cluster)}
    assert below == {engine.name("kernel").name}, f"what is in the staging directories stays on its host: {published(cluster)}"
    entry = next(entry for entry in os.scandir(at(b, engine).parent) if entry.name == at(b, engine).name)
    assert entry.is_dir(follow_symlinks=False) and not entry.is_symlink()
    assert not b.counters().get("fetch.blobs"), "a listing fetches nothing"
    assert find(b, engine) == made
    assert b.counters()["fetch.blobs"] == 1
    assert whole(at(b, engine)) == whole(at(a, engine))
    assert make(b, engine) == made, "its own writer takes what is there"
    for one, other in zip(sorted(at(a, engine).rglob("*")), sorted(at(b, engine).rglob("*")), strict=True):
        assert one.name == other.name and one.stat().st_size == other.stat().st_size


@every_engine
def test_files_that_only_their_owner_may_read_are_readable_elsewhere(pair, engine):
    """Engines write with the umask that they are given, and the pod of the second one has another user."""
    if os.geteuid() != 0:
        lack("changes users: root only")
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
def test_a_rename_onto_an_existing_directory_is_refused_as_its_writer_expects(pair, engine):
    a, b = pair
    made = shared(a, b, engine)
    for node in pair:
        assert rename_onto(node, engine) in (errno.ENOTEMPTY, errno.EEXIST), node.name
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


POINTS = {"parcel.stored": "a", "parcel.unpacked": "b", "parcel.placed": "b"}


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


def test_a_freeze_takes_the_whole_directory_and_its_end_gives_it_back(pair):
    (a, b), engine = pair, DeepGemm
    made = shared(a, b, engine)
    assert find(b, engine) == made
    done = a.cli("freeze", "--why", "a driver", a.cache)
    assert done.code == 0, done.err
    wait_until(lambda: not os.path.lexists(at(b, engine)), 20, "the directory to be away")
    assert whole(at(a, engine)), "what a host has made is its own"
    assert a.cli("freeze", "--lift", a.cache).code == 0
    wait_until(lambda: os.path.lexists(at(b, engine)), 20, "the directory to be back")
    assert find(b, engine) == made


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

# SPDX-License-Identifier: Apache-2.0
"""Four nodes, each daemon in a network namespace of its own, with one Redis on the bridge between them."""
import contextlib
import os
import shutil
import threading
import time

import pytest
from inductorfs_testing import artefacts, compare, mounts
from inductorfs_testing.mounts import appears
from inductorfs_testing.network import NetworkCluster
from inductorfs_testing.processes import PATIENCE, wait_until

NODES = ("a", "b", "c", "d")
APPEARS_WITHIN = 5.0
CATCHES_UP_WITHIN = 45.0  # the longest back-off is 30 s
DEADLINE = 2.0 * PATIENCE


@pytest.fixture(scope="module")
def cluster():
    with NetworkCluster() as made:
        for name in NODES:
            made.host(name)
        yield made


@pytest.fixture
def nodes(cluster):
    for node in cluster._nodes:
        cluster.heal(node)
    yield cluster._nodes
    for node in cluster._nodes:
        cluster.heal(node)


def together(nodes, work):
    """work(node) for all nodes at once; the first error of any is raised."""
    barrier, errors = threading.Barrier(len(nodes)), []

    def run(node):
        try:
            barrier.wait(30)
            work(node)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=run, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a node hangs"
    if errors:
        raise errors[0]


def test_what_one_publishes_appears_on_all(nodes):
    for writer in nodes:
        name = artefacts.write_graph(writer.cache, f"appears {writer.name}", f"by {writer.name}").relative_to(writer.cache)
        begin = time.monotonic()
        for reader in nodes:
            appears(reader.cache / name, APPEARS_WITHIN)
            assert (reader.cache / name).read_bytes() == f"by {writer.name}".encode()
        assert time.monotonic() - begin < APPEARS_WITHIN * PATIENCE


def test_all_publish_at_once_and_see_all(nodes):
    def write(node):
        for index in range(40):
            artefacts.write_atomic(node.cache, artefacts.code(f"many {node.name} {index}"), f"# {node.name} {index}\n")

    together(nodes, write)
    expected = {artefacts.code(f"many {node.name} {index}"): f"# {node.name} {index}\n" for node in nodes for index in range(40)}
    for node in nodes:
        node.sync()
    for node in nodes:
        for name, content in expected.items():
            assert appears(node.cache / name).read_text() == content


class Worker:
    """Writes, reads back and looks for others' names in a loop, and keeps the slowest of its operations."""

    def __init__(self, node, others):
        self._node, self._others = node, others
        self.written, self.slowest, self.errors, self.misses = [], 0.0, [], 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        index = 0
        while not self._over.is_set():
            index += 1
            try:
                content = f"{self._node.name} {time.monotonic()} {index}"
                begin = time.monotonic()
                path = artefacts.write_graph(self._node.cache, f"worker {self._node.name} {index}", content)
                assert path.read_text() == content
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.written.append((path.relative_to(self._node.cache), content))
                for other in self._others:
                    begin = time.monotonic()
                    if not (self._node.cache / artefacts.code(f"elsewhere {other} {index}")).exists():
                        self.misses += 1
                    self.slowest = max(self.slowest, time.monotonic() - begin)
            except BaseException as error:  # pylint: disable=broad-except
                self.errors.append(error)
                return
            time.sleep(0.005)

    def end(self):
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the worker hangs"
        if self.errors:
            raise self.errors[0]


def test_a_node_whose_link_is_cut_goes_on_and_catches_up(cluster, nodes):
    a, *_, d = nodes
    before = artefacts.write_graph(a.cache, "before the cut", "value").relative_to(a.cache)
    a.sync()
    appears(d.cache / before)
    worker = Worker(d, ["a", "b"])
    try:
        wait_until(lambda: len(worker.written) > 30, what="some work")
        cluster.cut(d)
        at_cut = len(worker.written)
        meanwhile = artefacts.write_graph(a.cache, "during the cut", "from a").relative_to(a.cache)
        a.sync()
        appears(nodes[1].cache / meanwhile)
        wait_until(lambda: len(worker.written) > at_cut + 100, 60, "work without the link")
        wait_until(lambda: not d.status()["remote"]["reachable"], 30, "the notice")
        assert (d.cache / before).read_text() == "value"
        assert not (d.cache / meanwhile).exists()
        assert d.status()["catalog"]["queued"] > 0
    finally:
        cluster.heal(d)
        worker.end()
    assert worker.slowest < DEADLINE
    appears(d.cache / meanwhile, CATCHES_UP_WITHIN)
    d.sync(60)
    for name, content in worker.written:
        assert appears(a.cache / name).read_text() == content


def test_a_cut_during_first_reads_is_misses_and_no_error(cluster, nodes):
    a, *_ = nodes
    reader = cluster.host("reader", "--prefetch", "0")
    try:
        expected = {artefacts.code(f"cut read {index}"): os.urandom(200_000).hex() for index in range(40)}
        for name, content in expected.items():
            artefacts.write_atomic(a.cache, name, content)
        a.sync()
        reader.catch_up(a)
        slowest, seen = 0.0, 0
        for index, (name, content) in enumerate(expected.items()):
            if index == 10:
                cluster.cut(reader)
            begin = time.monotonic()
            with contextlib.suppress(FileNotFoundError):
                assert (reader.cache / name).read_text() == content
                seen += 1
            slowest = max(slowest, time.monotonic() - begin)
        assert slowest < DEADLINE and 10 <= seen <= 40
        cluster.heal(reader)
        for name, content in expected.items():
            assert appears(reader.cache / name, CATCHES_UP_WITHIN).read_text() == content
    finally:
        cluster.heal(reader)
        reader.stop()
        cluster._nodes.remove(reader)


def test_a_storm_on_one_key_leaves_a_handful(cluster, nodes):
    """All missed the same keys, and all wrote a candidate of their own: the index keeps the first."""
    keys = [f"storm {round}" for round in range(12)]
    for key in keys:
        def compile_key(node, key=key):
            directory = (node.cache / artefacts.graph(key, "")).parent
            os.makedirs(directory, exist_ok=True)
            if not os.listdir(directory):
                artefacts.write_graph(node.cache, key, f"compiled by {node.name}")

        together(nodes, compile_key)
    for node in nodes:
        node.sync()
    index = mounts.published(cluster)
    for key in keys:
        directory = os.path.dirname(artefacts.graph(key, ""))
        candidates = [name for name in index if name.startswith(directory + "/")]
        assert 1 <= len(candidates) <= 2, (key, candidates)
        for node in nodes:
            for name in os.listdir(node.cache / directory):
                assert (node.cache / directory / name).read_text().startswith("compiled by ")


def test_a_storm_of_kernels_never_mixes_writers(nodes):
    for round_ in range(6):
        seeds = [f"kernel {round_} {index}" for index in range(4)]

        def compile_kernels(node, seeds=seeds):
            for seed in seeds:
                if artefacts.triton_read(node.cache, seed) is None:
                    artefacts.triton_compile(node.cache, seed, node.name)
                children = artefacts.triton_read(node.cache, seed)
                assert children and len(artefacts.triton_writers(children)) == 1, (node.name, seed, children)

        together(nodes, compile_kernels)
        for node in nodes:
            node.sync()
        for node in nodes:
            for seed in seeds:
                children = artefacts.triton_read(node.cache, seed)
                assert sorted(children) == sorted(artefacts.TRITON_FILES)
                assert len(artefacts.triton_writers(children)) == 1


def empty_by_command(cluster):
    cluster.redis.command("FLUSHALL")


def empty_by_restart(cluster):
    cluster.redis.kill()
    shutil.rmtree(cluster.redis.directory / "appendonlydir")
    # Asked before it starts: afterwards the nodes fill it again at once.
    left = {path.name for path in cluster.redis.directory.iterdir()}
    assert left <= {"redis.log", "redis.sock"}, "nothing that the data could come back from"
    cluster.redis.start()


@pytest.mark.parametrize("lose", [empty_by_command, empty_by_restart])
def test_a_redis_that_lost_everything_breaks_nothing(cluster, nodes, lose):
    a, b, c, _ = nodes
    own = artefacts.write_graph(a.cache, f"own {lose.__name__}", "of a")
    name = own.relative_to(a.cache)
    a.sync()
    appears(b.cache / name)
    worker = Worker(c, ["a"])
    try:
        wait_until(lambda: len(worker.written) > 20, what="some work")
        with open(b.cache / name, encoding="ascii") as held:
            lose(cluster)
            assert own.read_text() == "of a"
            assert held.read() == "of a"
        at_loss = len(worker.written)
        wait_until(lambda: len(worker.written) > at_loss + 50, 60, "work after the loss")
    finally:
        worker.end()
    assert worker.slowest < DEADLINE
    fresh = artefacts.write_graph(b.cache, f"fresh {lose.__name__}", "of b").relative_to(b.cache)
    for node in nodes:
        assert appears(node.cache / fresh, CATCHES_UP_WITHIN).read_text() == "of b"
    for node in nodes:
        node.sync(60)
        assert len(compare.mounts_below(node.cache)) == 1 and len(node.daemons()) == 1


def test_a_node_that_comes_late_sees_all(cluster, nodes):
    a, *_ = nodes
    late = cluster.host("late")
    try:
        name = artefacts.write_graph(a.cache, "for the late one", "value").relative_to(a.cache)
        a.sync()
        assert appears(late.cache / name, APPEARS_WITHIN).read_text() == "value"
        wait_until(lambda: set(mounts.published(cluster)) <=
                   {compare.canonical(path) for path in compare.names(late.cache)}, 20, "all of the index")
    finally:
        late.stop()
        cluster._nodes.remove(late)

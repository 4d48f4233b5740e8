# SPDX-License-Identifier: Apache-2.0
"""What the tests of directories that are one artefact have in common: mounts, and the engines' part of them (protocols.py)."""
import contextlib
import os
from pathlib import Path

import pytest
from inductorfs_testing import mounts
from inductorfs_testing.mounts import QuickCluster
from inductorfs_testing.processes import wait_until
from protocols import DIRECTORIES


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
    engine.begin(root)
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

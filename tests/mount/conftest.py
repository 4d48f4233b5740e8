# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import shutil

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.fixtures import lack
from inductorfs_testing.load import Load
from inductorfs_testing.mounts import QuickCluster, appears
from inductorfs_testing.twin import FIRST, ORIGINS, SECOND, Place, unused_name

_numbers = itertools.count()


@pytest.fixture
def root():
    if os.geteuid() != 0:
        lack("this test changes users, namespaces or disks: root only")


@pytest.fixture
def cluster():
    """No node is mounted yet."""
    with QuickCluster() as made:
        yield made


@pytest.fixture
def place(cluster):
    """A node's directories; nothing is mounted yet."""
    return cluster.node("a", start=False)


@pytest.fixture(scope="module")
def two_nodes():
    with QuickCluster() as made:
        made.quick("writer")
        made.quick("reader")
        yield made


@pytest.fixture(params=ORIGINS)
def places(request, two_nodes, tmp_path):
    """(on the mount, on a plain directory) with the same two files."""
    writer, reader = two_nodes._nodes
    number = next(_numbers)
    if request.param == "private":
        names, node = [f"directory {number}/one", f"directory {number}/two"], writer
    else:
        names, node = [unused_name(number, "one"), unused_name(number, "two")], writer
    for name, content in zip(names, (FIRST, SECOND), strict=True):
        artefacts.write_atomic(writer.cache, name, content)
    if request.param != "private":
        writer.sync()
    if request.param == "cluster":
        node = reader
        for name in names:
            appears(node.cache / name)
    plain = tmp_path / "plain"
    for name in names:
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(node.cache / name, plain / name)
    for root in (node.cache, plain):
        shutil.rmtree(root / "work", ignore_errors=True)
        (root / "work").mkdir()
    return Place(node.cache, *names), Place(plain, *names)


@pytest.fixture
def node(cluster):
    """Crashes without end, and no safe mode."""
    return cluster.quick("a", "--crash-limit", "0")


@pytest.fixture
def load(node, tmp_path):
    with Load(node.cache, tmp_path / "load") as made:
        made.advance(200)
        yield made

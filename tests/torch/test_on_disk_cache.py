# SPDX-License-Identifier: Apache-2.0
"""torch's own on-disk caches (torch/_inductor/runtime/caching, torch/_inductor/cache.py; since 2.10), which live in its
default directory: what one node measured or remembered, no other node measures."""
import os
import re

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.mounts import published

CACHES = places.WORKLOADS / "on_disk_cache.py"
PRODUCTS = ("4,3,5", "8,3,5")
ANOTHER = "16,3,5"
ENTRY = re.compile(r"^[0-9a-f]{32}$")


def entries(node, cache="should_pad"):
    """What the node lists, from the mount: its further place shows the same."""
    directory = node.cache / "cache" / cache
    return sorted(name for name in os.listdir(directory) if ENTRY.match(name)) if directory.exists() else []


def given(node, other):
    """Waits until the other node knows what this one has published."""
    node.sync()
    other.catch_up(node)


@pytest.fixture(scope="module")
def nodes():
    with Cluster(torch="2.15", environment={"TORCHINDUCTOR_ENABLE_CACHING_MODULE": "1"}, patient=True) as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        assert b.run(CACHES, "get", "nothing").json == {"values": [None]}  # so that the node has met this environment
        yield {"cluster": cluster, "a": a, "b": b}


@pytest.fixture(scope="module")
def measured(nodes):
    a, b = nodes["a"], nodes["b"]
    cold = a.run(CACHES, "pad", *PRODUCTS).json
    assert cold["measured"] == list(PRODUCTS), "else this file says nothing"
    assert len(entries(a)) == len(PRODUCTS), "torch wrote them to its default directory, and the mount has them"
    given(a, b)
    return cold


def test_what_one_node_measured_no_other_measures_but_another_product(nodes, measured):
    out = nodes["b"].run(CACHES, "pad", *PRODUCTS, ANOTHER).json
    assert out["measured"] == [ANOTHER]
    assert out["answers"][:len(PRODUCTS)] == measured["answers"]


def test_what_the_inductor_remembers_is_there_on_the_other_node(nodes):
    a, b = nodes["a"], nodes["b"]
    assert b.run(CACHES, "get", "answer").json == {"values": [None]}
    assert a.run(CACHES, "insert", "answer", "42").json == {"inserted": True, "value": "42"}
    given(a, b)
    assert b.run(CACHES, "get", "answer", "question").json == {"values": ["42", None]}
    assert b.run(CACHES, "insert", "answer", "43").json == {"inserted": False, "value": "42"}, "as within one host"


def test_nobody_sees_what_its_writer_has_not_finished(nodes):
    """It is created under its final name. A writer that was killed leaves the same file."""
    a, b = nodes["a"], nodes["b"]
    wrote = a.run(CACHES, "part", "long", "x" * 1000, 0, 500).json
    a.sync()
    assert os.path.getsize(wrote["path"]) == 500
    name = os.path.basename(wrote["path"])
    assert any(name in line and "cut off" in line for line in a.status()["file_system"]["refused"])
    # What is published after it comes after it.
    assert a.run(CACHES, "insert", "later", "1").json["inserted"] is True
    given(a, b)
    assert b.run(CACHES, "get", "later", "long").json == {"values": ["1", None]}
    assert not [path for path in published(nodes["cluster"]) if path.endswith(name)]

    a.run(CACHES, "part", "long", "x" * 1000, 500, wrote["size"])
    given(a, b)
    assert b.run(CACHES, "get", "long").json == {"values": ["x" * 1000]}


def test_switched_off_caches_are_neither_read_nor_published(nodes, measured):
    a, b = nodes["a"], nodes["b"]
    before = entries(a)
    out = b.run(CACHES, "pad", *PRODUCTS, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1").json
    assert out["measured"] == list(PRODUCTS)
    b.sync()
    assert entries(a) == before


def test_whoever_empties_the_caches_empties_those_of_one_node(nodes, measured):
    """fresh_cache() removes the directory of the memoizer, and disabled caches do so at each compile. The last test of this
    file: it empties node b."""
    a, b = nodes["a"], nodes["b"]
    assert b.run(CACHES, "fresh").json == {"left": []}
    b.sync()
    assert len(entries(a)) >= len(PRODUCTS)
    assert a.run(CACHES, "pad", *PRODUCTS).json["measured"] == []
    again = b.run(CACHES, "pad", *PRODUCTS).json
    assert again == {"measured": list(PRODUCTS), "answers": measured["answers"]}

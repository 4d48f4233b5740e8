# SPDX-License-Identifier: Apache-2.0
"""The lines of the incident table about Triton's key directories. Sets are made by Triton's compile, and mixed by its own
FileCacheManager in an order that is chance otherwise."""
import shutil
from pathlib import Path

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.processes import wait_until

from incident_worlds import VERSION
from incident_binaries import cubin_architecture
from incident_hosts import Facts, Hand, World, explain, listed, refused

KERNELS = places.WORKLOADS / "triton_kernels.py"
SOURCE = places.WORKLOADS / "kernel_set.py"
NAME = "axpy"


class Sets:
    """One kernel compiled twice for sm_80 from two paths, and once for sm_90: key directories as Triton wrote them."""

    def __init__(self, directory: Path, hand):
        self.directories, self.loaded = {}, {}
        for writer, target in (("first", 80), ("second", 80), ("newer", 90)):
            source = directory / writer / "kernel_set.py"
            source.parent.mkdir(parents=True)
            shutil.copy2(SOURCE, source)
            made = hand("compile_kernel", source=source, name=NAME, target=target, cache=directory / writer / "cache")
            self.directories[writer] = directory / writer / "cache" / made["key"]
            self.loaded[writer] = made["loaded"]
        self.key, self.newer_key = self.directories["first"].name, self.directories["newer"].name
        assert self.key == self.directories["second"].name != self.newer_key

    def children(self, writer):
        return sorted(path.name for path in self.directories[writer].iterdir() if not path.name.startswith("__grp__"))

    def owners(self, loaded):
        """Which writers' bytes Triton has loaded; what both made alike says nothing."""
        return {writer for writer in ("first", "second") for kind, digest in loaded.items()
                if digest == self.loaded[writer].get(kind)
                and self.loaded["first"].get(kind) != self.loaded["second"].get(kind)}


class TritonWorld(World):
    def __init__(self, cluster):
        super().__init__(cluster, Facts.learn(cluster.python))
        node = self.node("hands")
        # Processes that have written nothing to a mount read it as any other does.
        self.first, self.second, self.reading = self.hands = [Hand(node) for _ in range(3)]
        self.sets = Sets(cluster.directory / "sets", self.first)

    def pair(self, name, facts=None):
        return tuple(self.node(f"{name}-{which}", facts, "--prefix", name) for which in ("writer", "reader"))

    def put(self, hand, cache, writer, names=None, over=None):
        """Puts what this writer made for the key into another cache, without the group. over: other bytes for a name."""
        paths = {}
        for name in self.sets.children(writer) if names is None else names:
            source = (over or {}).get(name, self.sets.directories[writer] / name)
            paths[name] = hand("put", cache=cache, key=self.sets.directories[writer].name, name=name, source=source)
        return paths

    def put_set(self, hand, cache, writer, over=None):
        paths = self.put(hand, cache, writer, over=over)
        hand("put_group", cache=cache, key=self.sets.directories[writer].name, name=f"{NAME}.json", children=paths)

    def close(self):
        for hand in self.hands:
            hand.close()


@pytest.fixture(scope="module")
def triton():
    with Cluster(torch=VERSION, patient=True) as cluster:
        world = TritonWorld(cluster)
        yield world
        world.close()


def groups(node):
    return {name for name in listed(node) if "/__grp__" in name}


def group_of(key):
    return f"triton/@/{key}/__grp__{NAME}.json"


# ---- wrong reuse

def a100(facts):
    """An A100 in place of whatever this host has: sm_80."""
    gpu, arch = "device=NVIDIA A100-SXM4-80GB; cc=8.0; sms=108; memory_gib=80", "cc=8.0"
    return facts.edited("gpu", (r"(?s)\A.*\Z", gpu)).edited("gpu-arch", (r"(?s)\A.*\Z", arch))


def h100(facts):
    gpu, arch = "device=NVIDIA H100 80GB HBM3; cc=9.0; sms=132; memory_gib=80", "cc=9.0"
    return facts.edited("gpu", (r"(?s)\A.*\Z", gpu)).edited("gpu-arch", (r"(?s)\A.*\Z", arch))


def test_kernel_for_sm_90_is_not_seen_before_sm_80(triton):
    """What an H100's node publishes is nothing to an A100's."""
    sets = triton.sets
    writer, reader = (triton.node(name, facts, "--prefix", "arch") for name, facts in (
        ("arch-h100", h100(triton.facts)), ("arch-a100", a100(triton.facts))))
    twin = triton.node("arch-h100-too", h100(triton.facts), "--prefix", "arch")
    triton.put_set(triton.first, writer.cache / "triton" / "0", "newer")
    writer.sync()
    wait_until(lambda: groups(twin) == {group_of(sets.newer_key)}, 20, "the set on an equal node")
    assert groups(reader) == set()
    assert not (reader.cache / "triton" / "0" / sets.newer_key / f"{NAME}.cubin").exists()


def test_cubin_for_sm_90_in_a_key_directory_of_sm_80(triton, tmp_path):
    """The set says sm_80, its cubin is one for sm_90. Triton reads it from a plain directory without a word; what a driver
    says then (no kernel image for this device) takes a device to show."""
    sets = triton.sets
    foreign = sets.directories["newer"] / f"{NAME}.cubin"
    assert cubin_architecture(foreign.read_bytes()) == 90
    assert cubin_architecture((sets.directories["first"] / f"{NAME}.cubin").read_bytes()) == 80
    writer, reader = triton.pair("cubin", a100(triton.facts))
    hand = triton.first

    triton.put_set(hand, tmp_path / "plain", "first", over={f"{NAME}.cubin": foreign})
    source = sets.directories["first"].parent.parent / "kernel_set.py"
    got = hand("compile_kernel", source=source, name=NAME, target=80, cache=tmp_path / "plain")["loaded"]
    assert got["cubin"] == sets.loaded["newer"]["cubin"]

    triton.put_set(hand, writer.cache / "triton" / "0", "first", over={f"{NAME}.cubin": foreign})
    writer.sync()
    assert any("cubin" in line for line in refused(writer)), refused(writer)
    assert groups(reader) == set()
    assert not (reader.cache / "triton" / "0" / sets.key / f"{NAME}.cubin").exists()


def mix(triton, cache):
    """The first process puts its children, the second half of its own over them, then the first puts the group."""
    children = triton.sets.children("first")
    paths = triton.put(triton.first, cache, "first")
    triton.put(triton.second, cache, "second", children[::2])
    triton.first("put_group", cache=cache, key=triton.sets.key, name=f"{NAME}.json", children=paths)
    source = triton.sets.directories["first"].parent.parent / "kernel_set.py"
    return lambda reader, place=cache: reader("compile_kernel", source=source, name=NAME, target=80, cache=place)["loaded"]


def test_set_with_children_of_two_writers(triton, tmp_path):
    """Triton's protocol lets a put of one process replace that of another before the group is there: on a plain directory
    what is loaded is then of both."""
    writer, reader = triton.pair("mixed")
    load = mix(triton, tmp_path / "plain")
    assert triton.sets.owners(load(triton.first)) == {"first", "second"}

    cache = writer.cache / "triton" / "0"
    load = mix(triton, cache)
    assert triton.sets.owners(load(triton.first)) == {"first"}
    writer.sync()
    wait_until(lambda: groups(reader) == {group_of(triton.sets.key)}, 20, "the set on the other node")
    assert triton.sets.owners(load(triton.reading, reader.cache / "triton" / "0")) == {"first"}


def test_group_that_names_a_child_that_is_not_there(triton, tmp_path):
    """On a plain directory Triton up to 3.6 leaves the child out and fails for want of a binary, later ones miss for ever:
    every process compiles that kernel again."""
    writer, reader = triton.pair("absent")
    hand, sets = triton.first, triton.sets
    for cache in (tmp_path / "plain", writer.cache / "triton" / "0"):
        paths = triton.put(hand, cache, "first", [name for name in sets.children("first") if not name.endswith(".cubin")])
        paths[f"{NAME}.cubin"] = str(cache / sets.key / f"{NAME}.cubin")
        hand("put_group", cache=cache, key=sets.key, name=f"{NAME}.json", children=paths)
        assert hand("get_group", cache=cache, key=sets.key, name=f"{NAME}.json") is None
    writer.sync()
    assert groups(reader) == set()
    assert not (reader.cache / "triton" / "0" / sets.key / f"{NAME}.ttir").exists()


@pytest.mark.parametrize("where", ["another key", "outside", "climbing"])
def test_group_that_names_a_child_outside(triton, tmp_path, where):
    """Triton follows the path, wherever it leads: from a plain directory it takes the file from there."""
    name = where.replace(" ", "-")
    writer, reader = triton.pair(f"child-{name}")
    hand, sets = triton.first, triton.sets
    for cache in (tmp_path / "plain", writer.cache / "triton" / "0"):
        paths = triton.put(hand, cache, "first")
        triton.put(hand, cache, "newer")
        paths[f"{NAME}.cubin"] = {
            "another key": str(cache / sets.newer_key / f"{NAME}.cubin"),
            "outside": str(sets.directories["newer"] / f"{NAME}.cubin"),
            "climbing": f"{cache}/{sets.key}/../{sets.newer_key}/{NAME}.cubin"}[where]
        hand("put_group", cache=cache, key=sets.key, name=f"{NAME}.json", children=paths)
        if cache == tmp_path / "plain":
            found = hand("get_group", cache=cache, key=sets.key, name=f"{NAME}.json")
            assert Path(found[f"{NAME}.cubin"]).read_bytes() == (sets.directories["newer"] / f"{NAME}.cubin").read_bytes()
    writer.sync()
    assert groups(reader) == set()
    assert explain(writer, f"triton/0/{sets.key}/__grp__{NAME}.json")["publish"] != "published"


# ---- needless misses

def test_another_device_index(triton):
    """Written as triton/0, read as triton/5, on another path."""
    a, b = triton.pair("index")
    job = ("--only", "axpy,softmax", "--targets", "80,90")
    cold = a.run(KERNELS, *job, TRITON_CACHE_DIR=a.cache / "triton" / "0").json
    assert cold["stages"]["cubin"] == 4
    a.sync()
    b.catch_up(a)
    before = compare.lasting(b.cache)
    warm = b.run(KERNELS, *job, TRITON_CACHE_DIR=b.cache / "triton" / "5").json
    assert warm["stages"] == {}
    assert warm["keys"] == cold["keys"] and warm["cubins"] == cold["cubins"]
    assert {compare.canonical(name) for name in compare.lasting(b.cache)} == {compare.canonical(name) for name in before}
